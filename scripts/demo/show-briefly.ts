import { stripVTControlCharacters } from 'node:util'
import type { ActionResult } from '../../local/runner.ts'
import { viewLog } from '../terminal/log-view.ts'
import { markdownLines } from '../terminal/markdown.ts'
import { print, styled, symbol, wrapped } from '../terminal/screen.ts'
import type { Deployment } from './deployments.ts'
import { listInstalled } from './installed.ts'

const EMOJI = /^\p{Extended_Pictographic}\ufe0f?\s*/u
const DIGEST = /\b([\da-f]{12})[\da-f]{52}\b/g
/** Leaves room in 100 columns for the name of the field, and for the mark of a shortened text. */
const TEXT_WIDTH = 90

/** Prints the story, the result of the step, and the versions on the host. */
export function showBriefly(deployment: Deployment, { result, root }: { result: ActionResult; root: string }): void {
  const { title, story, verified } = deployment
  const isSuccess = result.exitCode === 0
  const sign = styled(isSuccess ? 'green' : 'red', symbol(isSuccess ? 'good' : 'bad'))
  const [headline = ''] = markdownLines(result.summary)
  const error = result.outputs['error-code']
  const runs = listInstalled(root).map(({ id, version }) => `${id} ${version}`)
  print('', `${styled('bold', `${title}.`)} ${story}`)
  printField('step', `${sign}${stripVTControlCharacters(headline).replace(EMOJI, '')}`)
  if (error) printField('why', `${error}: ${messageIn(result.log)}`)
  printField('host', `runs ${runs.toSorted().join(', ')}. ${verified}`)
}

/** The message of the error annotation. */
function messageIn(log: string): string {
  const error = viewLog(log, { isOpen: false }).find(line => line.includes('Error ('))
  return error?.replace(/^.*?\): /, '') ?? ''
}

/** Prints at most two lines: a message may have several sentences, and the log has all of them. */
function printField(name: string, text: string): void {
  const lines = wrapped(text.replace(DIGEST, '$1…'), TEXT_WIDTH)
  const shown = lines.length > 2 ? [lines[0], `${lines[1]} …`] : lines
  print(...shown.map((line, index) => `  ${(index === 0 ? name : '').padEnd(6)}${line}`))
}
