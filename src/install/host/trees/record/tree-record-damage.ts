/** A tree record that is not what this action has written; the message says what is wrong with it. */
export class TreeRecordDamage extends Error {
  override readonly name = 'TreeRecordDamage'
}
