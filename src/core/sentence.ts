/**
 * Returns the text so that another sentence can follow it: adds a full stop unless the text ends with `.`, `!` or `?`,
 * which one quotation mark or closing parenthesis may follow.
 */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
