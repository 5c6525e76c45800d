/** Returns the text as a sentence that another one can follow: with a full stop, unless it already ends with a mark. */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
