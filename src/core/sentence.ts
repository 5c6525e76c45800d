/** The text as a sentence that another one can follow: with a full stop, unless it ends with a mark of its own. */
export function asSentence(text: string): string {
  return /[.!?]["')]?$/.test(text) ? text : `${text}.`
}
