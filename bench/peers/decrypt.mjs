import { createDecipheriv } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'

const [source, target] = process.argv.slice(2)
const sealed = readFileSync(source)
const key = Buffer.from(process.env.DEK, 'base64')
const decipher = createDecipheriv('aes-256-gcm', key, sealed.subarray(0, 12), { authTagLength: 16 })
decipher.setAuthTag(sealed.subarray(-16))
const opened = decipher.update(sealed.subarray(12, -16))
decipher.final()
writeFileSync(target, opened)
