import type { ClientRequest } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { TransientError } from './failures.ts'
import type { Timeouts } from './settings.ts'

/**
 * Watches one connection: aborts its signal with TransientError `timeout` when it is not ready within `connectMs`, or when
 * the server then stays silent for `idleMs` while we wait for it. The time that we take ourselves does not count.
 */
export class ConnectionWatch {
  readonly signal: AbortSignal
  /** Whether the connection was ready, so that bytes of the request may have left. */
  sent = false
  readonly #controller = new AbortController()
  readonly #origin: string
  readonly #timeouts: Timeouts
  #timer: NodeJS.Timeout

  constructor(origin: string, timeouts: Timeouts, outer: AbortSignal) {
    this.#origin = origin
    this.#timeouts = timeouts
    this.signal = AbortSignal.any([outer, this.#controller.signal])
    this.#timer = setTimeout(() => this.#controller.abort(this.#unconnected()), timeouts.connectMs)
  }

  /** Begins to wait for the server once the request has a connection that is ready: for TLS, one that is verified. */
  follow(request: ClientRequest): void {
    request.once('socket', socket => whenReady(socket, () => this.#ready()))
  }

  /** The server's turn: its silence counts from now on. */
  awaitServer(): void {
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#controller.abort(this.#silent()), this.#timeouts.idleMs)
  }

  /** Our turn: nothing counts. */
  pause(): void {
    clearTimeout(this.#timer)
  }

  /** Ends the connection, whatever it is doing. */
  close(): void {
    this.pause()
    this.#controller.abort()
  }

  #ready(): void {
    this.sent = true
    this.awaitServer()
  }

  #unconnected(): TransientError {
    const message = `${this.#origin} could not be connected to within ${this.#timeouts.connectMs / 1000} s: check the URL, the network and any proxy.`
    return new TransientError('timeout', message, false)
  }

  #silent(): TransientError {
    const message = `${this.#origin} sent nothing for ${this.#timeouts.idleMs / 1000} s: check the server and the network.`
    return new TransientError('timeout', message, true)
  }
}

function whenReady(socket: Socket, ready: () => void): void {
  if (socket instanceof TLSSocket) socket.once('secureConnect', ready)
  else if (socket.connecting) socket.once('connect', ready)
  else ready()
}
