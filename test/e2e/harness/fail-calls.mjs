// Preloaded into an action: counts the file calls and the children that the action starts, from the moment when the
// file ARMED exists, and makes one of them fail. The bindings below Node's own `fs` and `child_process` are replaced, so
// the action gets the same errors, in the same way, as from the system.
//
// FAULT is JSON: `nth` is the number of the call that fails, counted from 1; none fails without it. `errno` is the error.
// With `forEver`, all later calls of the same name below the same folder fail, too. `from` is the call that has failed
// already in an earlier process, so that the calls like it fail from the start. FAULT_LOG receives the calls.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { getSystemErrorMap } from 'node:util'

const { ARMED, FAULT_LOG, FAULT_ROOT } = process.env
const { nth, errno = 5, forEver = false, from } = JSON.parse(process.env.FAULT ?? '{}')
const { existsSync, readlinkSync, writeFileSync } = fs
const binding = process.binding('fs')
const { Process } = process.binding('process_wrap')

/** The calls, and the names under which the system's errors mention them. */
const CALLS = {
  ...Object.fromEntries(
    ['access', 'chmod', 'close', 'fchmod', 'fdatasync', 'fstat', 'fsync', 'ftruncate', 'link', 'lstat', 'mkdir', 'open']
      .concat(['read', 'readlink', 'rename', 'rmdir', 'stat', 'statfs', 'symlink', 'unlink', 'utimes', 'futimes'])
      .map(name => [name, name]),
  ),
  ...{ openFileHandle: 'open', readBuffers: 'read', readFileUtf8: 'open', readdir: 'scandir', realpath: 'realpath' },
  ...{ writeBuffer: 'write', writeBuffers: 'write', writeFileUtf8: 'open', writeString: 'write', copyFile: 'copyfile' },
}

/** The calls from the arming on, one text each. */
const seen = []
/** The call that has failed first, whose like fails from then on. */
let failed = from
/** True while this program itself makes calls. */
let isOwn = false
let isArmed = from !== undefined

for (const [name, syscall] of Object.entries(CALLS)) {
  const call = binding[name]
  binding[name] = function (...args) {
    const place = isOwn ? undefined : placeOf(args[0])
    if (place === undefined || !isHit(name, place)) return call.apply(this, args)
    // Even a failed close frees the descriptor.
    if (name === 'close') call.call(this, args[0])
    return failIn(args, errorOf(syscall, args))
  }
}

// Large directories are read through another binding.
const { opendirSync } = fs
fs.opendirSync = (path, ...more) => {
  if (isHit('opendir', placeOf(path))) throw errorOf('opendir', [path])
  return opendirSync(path, ...more)
}
syncBuiltinESMExports()

const MISSING = '/nonexistent/program'
const spawn = Process.prototype.spawn
Process.prototype.spawn = function (...args) {
  // Older versions of Node pass an object with the arguments.
  const command = Array.isArray(args[1]) ? args[1] : args[0].args
  if (!isHit('spawn', { area: 'spawn', path: command.slice(0, 3).join(' ') })) return spawn.apply(this, args)
  // A start that fails has opened its pipes, as this one does.
  const [first, ...more] = args
  spawn.call(this, typeof first === 'string' ? MISSING : { ...first, file: MISSING }, ...more)
  return -errno
}

process.once('exit', () => {
  isOwn = true
  if (FAULT_LOG !== undefined && isArmed) writeFileSync(FAULT_LOG, JSON.stringify({ calls: seen, failed }))
})

/** Counts a call; true if it has to fail. */
function isHit(name, { area, path }) {
  isArmed ||= path.startsWith(join(FAULT_ROOT, '.hub-deploy')) && own(() => existsSync(ARMED))
  if (!isArmed) return false
  seen.push(`${name} ${path}`)
  if (failed !== undefined) return forEver && failed.name === name && failed.area === area
  if (seen.length !== nth) return false
  failed = { name, area, path }
  return true
}

/** The path of a call, and the folder or file for which an error of that call stands. Undefined for a closed pipe. */
function placeOf(first) {
  const path = typeof first === 'number' ? pathOfDescriptor(first) : withoutDescriptor(String(first))
  return path === undefined ? undefined : { path, area: path.startsWith(FAULT_ROOT) ? FAULT_ROOT : path }
}

function pathOfDescriptor(fd) {
  const path = tryReadLink(`/proc/self/fd/${fd}`)
  return path?.startsWith('/') ? path : undefined
}

function withoutDescriptor(path) {
  const [, fd, inner] = /^\/proc\/self\/fd\/(\d+)(\/.*)?$/s.exec(path) ?? []
  return fd === undefined ? path : `${tryReadLink(`/proc/self/fd/${fd}`) ?? ''}${inner ?? ''}`
}

function tryReadLink(path) {
  return own(() => {
    try {
      return readlinkSync(path)
    } catch {
      return undefined
    }
  })
}

function own(act) {
  isOwn = true
  try {
    return act()
  } finally {
    isOwn = false
  }
}

function errorOf(syscall, [first, second]) {
  const [code, words] = getSystemErrorMap().get(-errno) ?? [
    `Unknown system error ${-errno}`,
    `Unknown system error ${-errno}`,
  ]
  const isPath = value => typeof value === 'string' || Buffer.isBuffer(value)
  const path = isPath(first) ? String(first) : undefined
  const dest =
    ['rename', 'link', 'symlink', 'copyfile'].includes(syscall) && isPath(second) ? String(second) : undefined
  const where = path === undefined ? '' : ` '${path}'${dest === undefined ? '' : ` -> '${dest}'`}`
  const error = new Error(`${code}: ${words}, ${syscall}${where}`)
  return Object.assign(error, { errno: -errno, code, syscall }, path && { path }, dest && { dest })
}

/** Fails as the binding does: by a callback, a promise or an exception. */
function failIn(args, error) {
  const request = args.find(arg => arg instanceof binding.FSReqCallback)
  if (request !== undefined) return void setImmediate(() => request.oncomplete(error))
  if (args.some(arg => typeof arg === 'symbol')) return Promise.reject(error)
  throw error
}
