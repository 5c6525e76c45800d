/**
 * Returns the text as a sentence that another sentence can follow. Adds a period unless the text already ends with `.`,
 * `!` or `?`. A closing quotation mark or parenthesis may follow.
 */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
