import type { YAMLError } from 'yaml'
import { cleanForeignText } from './foreign-text.ts'

/** What the YAML parser complains about, as a sentence for the person who wrote the file. */
export function yamlErrorSentence(error: YAMLError): string {
  switch (error.code) {
    case 'MULTIPLE_DOCS':
      return 'the file must hold one YAML document, found another one here'
    case 'TAB_AS_INDENT':
      return 'tabs are not accepted as indentation: use spaces'
    case 'RESOURCE_EXHAUSTION':
      return 'nested too deeply to be read'
    case 'NON_STRING_KEY':
      return 'keys must be text'
    case 'TAG_RESOLVE_FAILED':
      return `tags beyond the YAML core schema are not accepted: ${lowerFirst(error)}`
    default:
      return `not valid YAML: ${lowerFirst(error)}`
  }
}

function lowerFirst(error: YAMLError): string {
  const message = cleanForeignText(error.message, 200)
  return message.charAt(0).toLowerCase() + message.slice(1)
}
