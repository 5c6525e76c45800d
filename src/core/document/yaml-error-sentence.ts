import type { YAMLError } from 'yaml'
import { cleanForeignText } from '../foreign-text.ts'

/**
 * What the YAML parser complains about, as a sentence for the person who wrote the file. Quotes nothing of the file: it
 * may be another one than was meant, with secrets in it.
 */
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
      return 'tags (!) beyond the YAML core schema are not accepted: remove it'
    case 'BAD_DIRECTIVE':
      return 'directives (%) are not accepted: remove them'
    case 'BAD_DQ_ESCAPE':
      return 'not valid YAML: invalid escape sequence in double quotes'
    default:
      return `not valid YAML: ${lowerFirst(withoutQuote(error.message))}`
  }
}

/** The parser quotes after a colon that ends a word. */
function withoutQuote(message: string): string {
  return cleanForeignText(message.replace(/(?<=\w): .*/s, ''), 200)
}

function lowerFirst(message: string): string {
  return message.charAt(0).toLowerCase() + message.slice(1)
}
