/** A tree record that is not as this action wrote it; the message says what is wrong. */
export class TreeRecordDamage extends Error {
  override readonly name = 'TreeRecordDamage'
}
