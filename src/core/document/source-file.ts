/** An operator's file: its text, and its path for messages. */
export interface SourceFile {
  path: string
  text: string
}
