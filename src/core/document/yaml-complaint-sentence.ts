import { cleanForeignText } from '../foreign-text.ts'
import type { YamlComplaint } from './compose-yaml.ts'

/**
 * Turns the YAML parser's complaint into a sentence for the author of the file. Quotes nothing from the file, which may
 * be the wrong file and contain secrets.
 */
export function yamlComplaintSentence({ code, message }: Pick<YamlComplaint, 'code' | 'message'>): string {
  switch (code) {
    case 'MULTIPLE_DOCS':
      return 'the file must contain only one YAML document, but another begins here'
    case 'TAB_AS_INDENT':
      return 'tabs are not accepted as indentation: use spaces'
    case 'RESOURCE_EXHAUSTION':
      return `the file has ${message}: shorten or simplify it`
    case 'NON_STRING_KEY':
      return 'keys must be text'
    case 'TAG_RESOLVE_FAILED':
      return 'tags (!) beyond the YAML core schema are not accepted: remove the tag'
    case 'BAD_DIRECTIVE':
      return 'directives (%) are not accepted: remove them'
    case 'BAD_DQ_ESCAPE':
      return 'not valid YAML: invalid escape sequence in double quotes'
    default:
      return `not valid YAML: ${lowerFirst(withoutQuote(message))}`
  }
}

/** Removes the text that the parser quotes from the file: everything after a word and a colon. */
function withoutQuote(message: string): string {
  return cleanForeignText(message.replace(/(?<=\w): .*/s, ''), 200)
}

function lowerFirst(message: string): string {
  return message.charAt(0).toLowerCase() + message.slice(1)
}
