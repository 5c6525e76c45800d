/**
 * Returns the text as a sentence that another sentence can follow: adds a period unless the text ends with `.`, `!` or
 * `?`, which one quotation mark or closing parenthesis may follow.
 */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
