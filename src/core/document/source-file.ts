/** An operator's file as it was read: its path as the operator wrote it, for messages, and its text. */
export interface SourceFile {
  path: string
  text: string
}
