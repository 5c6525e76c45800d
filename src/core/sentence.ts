/** Returns the text so that another sentence can follow it: adds a full stop unless it ends with `.`, `!` or `?`. */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
