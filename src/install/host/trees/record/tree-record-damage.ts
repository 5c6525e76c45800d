/** A tree record that this action did not write like this; the message says what is wrong with it. */
export class TreeRecordDamage extends Error {
  override readonly name = 'TreeRecordDamage'
}
