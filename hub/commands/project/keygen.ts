import { createSigningKey, signerPublicKey } from '../../project/signing-key.ts'
import { type Command, parseCommandLine, requireOption } from '../command.ts'

export const keygen: Command = {
  summary: 'makes a key that signs sealed projects',
  usage: `npm run hub -- project keygen --out FILE

  --out FILE       where the private key goes (PEM, mode 0600); a file that is there is never written over

It prints the public key, and nothing else, on standard output: hosts pin it as signer-public-key.`,
  run: async args => {
    const { values } = parseCommandLine(args, { out: { type: 'string' } })
    const out = requireOption('out', values.out)
    const key = createSigningKey(out)
    console.error(`The private key is in ${out}: keep it, and keep it secret. The public key:`)
    console.log(signerPublicKey(key))
  },
}
