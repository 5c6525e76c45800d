import { createSigningKey, signerPublicKey } from '../../project/signing-key.ts'
import { type Command, SILENT_USAGE } from '../command.ts'
import { parseCommandLine, requireOption } from '../command-line.ts'

export const keygen: Command = {
  summary: 'creates a key to sign sealed projects',
  usage: `npm run hub -- project keygen --out FILE

  --out FILE       the file for the private key (PEM, mode 0600); must not exist yet

Standard output gets the public key and nothing else. Hosts pin it as signer-public-key.
${SILENT_USAGE}`,
  run: async args => {
    const { values } = parseCommandLine(args, { out: { type: 'string' } })
    const out = requireOption('out', values.out)
    const key = createSigningKey(out)
    console.error(`The private key is in ${out}: keep it safe and secret. The public key is:`)
    console.log(signerPublicKey(key))
  },
}
