// This project writes its summary itself. The original loads `fs/promises` of Node.js into every run.

export const summary = undefined
export const markdownSummary = undefined
