import { isStringLiteral, type Node, type SourceFile, SyntaxKind } from 'typescript/unstable/ast'
import {
  isAwaitExpression,
  isBinaryExpression,
  isBlock,
  isCallExpression,
  isConditionalExpression,
  isExpressionStatement,
  isIfStatement,
  isNumericLiteral,
  isTypeNode,
  isWhileStatement,
} from 'typescript/unstable/ast/is'
import { ERROR_CODES } from '../../src/core/errors.ts'

/** One small change to a source file. */
export interface Mutation {
  /** The file's path from the root of the checkout. */
  readonly file: string
  /** From 1. */
  readonly line: number
  readonly start: number
  readonly end: number
  readonly text: string
  /** The old and the new code, shortened: `a < b → a <= b`. */
  readonly what: string
}

interface Change {
  readonly from: Node
  readonly to: string
}

const SWAPPED: Readonly<Record<string, string>> = {
  '&&': '||',
  '||': '&&',
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
}
const EQUALITIES = ['===', '!==']
const OPPOSITE: Readonly<Record<string, string>> = { '+': '-', '-': '+' }
const LEAVING = [
  SyntaxKind.ReturnStatement,
  SyntaxKind.ThrowStatement,
  SyntaxKind.ContinueStatement,
  SyntaxKind.BreakStatement,
]
const SHOWN_LENGTH = 60

/** Returns every mutation of a file, in the order of the text. */
export function mutationsOf(source: SourceFile, file: string): Mutation[] {
  const found: Mutation[] = []
  const visit = (node: Node): void => {
    if (isTypeNode(node)) return
    for (const { from, to } of changesOf(node)) {
      const start = from.getStart(source)
      const line = source.text.slice(0, start).split('\n').length
      const what = `${shorten(from.getText(source))} → ${shorten(to)}`
      found.push({ file, line, start, end: from.end, text: to, what })
    }
    node.forEachChild(visit)
  }
  visit(source)
  return found
}

export function mutate(text: string, { start, end, text: replacement }: Mutation): string {
  return text.slice(0, start) + replacement + text.slice(end)
}

function changesOf(node: Node): Change[] {
  if (isAwaitExpression(node)) return [{ from: node, to: node.expression.getText() }]
  if (isBinaryExpression(node)) return operatorChanges(node.left, node.operatorToken, node.right)
  if (isIfStatement(node)) {
    const leaves = node.elseStatement === undefined && LEAVING.includes(lastOf(node.thenStatement).kind)
    return [...negations(node.expression), ...(leaves ? [{ from: node, to: ';' }] : [])]
  }
  if (isConditionalExpression(node)) return negations(node.condition)
  if (isWhileStatement(node)) return negations(node.expression)
  if (isExpressionStatement(node)) {
    const called = isAwaitExpression(node.expression) ? node.expression.expression : node.expression
    return isCallExpression(called) ? [{ from: node, to: ';' }] : []
  }
  if (isNumericLiteral(node)) return [{ from: node, to: `${Number(node.text) + 1}` }]
  if (isStringLiteral(node)) return codeChanges(node, node.text)
  if (node.kind === SyntaxKind.TrueKeyword) return [{ from: node, to: 'false' }]
  if (node.kind === SyntaxKind.FalseKeyword) return [{ from: node, to: 'true' }]
  return []
}

function operatorChanges(left: Node, operator: Node, right: Node): Change[] {
  const text = operator.getText()
  const isWithNumber = isNumericLiteral(left) || isNumericLiteral(right)
  const to = SWAPPED[text] ?? (isWithNumber ? OPPOSITE[text] : undefined)
  return to === undefined ? [] : [{ from: operator, to }]
}

/** The swap of an equality negates it already. */
function negations(condition: Node): Change[] {
  if (isBinaryExpression(condition) && EQUALITIES.includes(condition.operatorToken.getText())) return []
  return [{ from: condition, to: `!(${condition.getText()})` }]
}

function codeChanges(node: Node, code: string): Change[] {
  const index = (ERROR_CODES as readonly string[]).indexOf(code)
  if (index === -1) return []
  return [{ from: node, to: `'${ERROR_CODES[(index + 1) % ERROR_CODES.length]}'` }]
}

function lastOf(statement: Node): Node {
  return isBlock(statement) ? (statement.statements.at(-1) ?? statement) : statement
}

function shorten(code: string): string {
  const line = code.replaceAll(/\s+/g, ' ')
  return line.length <= SHOWN_LENGTH ? line : `${line.slice(0, SHOWN_LENGTH - 1)}…`
}
