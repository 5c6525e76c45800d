import type { ClientRequest } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { WireSettings } from '../settings.ts'
import { CONNECTION_ADVICE, explainFailure, TransientError } from './failures.ts'

type WatchSettings = Pick<WireSettings, 'timeouts' | 'signal' | 'startTimer'>

/**
 * Watches one connection: aborts its signal with TransientError `timeout` when it is not ready within `connectMs`, or
 * when the server then stays silent for `idleMs` while we wait for it. The time that we take ourselves does not count.
 */
export class ConnectionWatch {
  readonly origin: string
  /** Aborted when a time-out expires, when the settings' signal is, and when the connection is closed. */
  readonly signal: AbortSignal
  /** Whether the connection was ready, so that bytes of the request may have left. */
  sent = false
  readonly #controller = new AbortController()
  readonly #settings: WatchSettings
  #stopTimer: () => void

  constructor(origin: string, settings: WatchSettings) {
    this.origin = origin
    this.#settings = settings
    this.signal = AbortSignal.any([settings.signal, this.#controller.signal])
    const expire = () => this.#controller.abort(this.#unconnected())
    this.#stopTimer = settings.startTimer(settings.timeouts.connectMs, expire)
  }

  /** Starts to wait for the server once the request has a connection that is ready: for TLS, one that is verified. */
  follow(request: ClientRequest): void {
    request.once('socket', socket => whenReady(socket, () => this.#ready()))
  }

  /** The server's turn: from now on its silence counts. */
  awaitServer(): void {
    this.#stopTimer()
    const expire = () => this.#controller.abort(this.#silent())
    this.#stopTimer = this.#settings.startTimer(this.#settings.timeouts.idleMs, expire)
  }

  /** Our turn: nothing counts. */
  pause(): void {
    this.#stopTimer()
  }

  /** Ends the connection in any state. */
  close(): void {
    this.pause()
    this.#controller.abort()
  }

  /**
   * Ends the connection after an error and returns what to throw: the signal's reason once that is aborted, else the
   * error explained.
   */
  endWith(error: unknown): unknown {
    const reason = this.signal.aborted ? this.signal.reason : explainFailure(error, this)
    this.close()
    return reason
  }

  #ready(): void {
    this.sent = true
    this.awaitServer()
  }

  #unconnected(): TransientError {
    const message = `Could not connect to ${this.origin} within ${this.#settings.timeouts.connectMs / 1000} s: ${CONNECTION_ADVICE}`
    return new TransientError('timeout', message, { sent: false })
  }

  #silent(): TransientError {
    const message = `${this.origin} sent nothing for ${this.#settings.timeouts.idleMs / 1000} s: check the server and the network.`
    return new TransientError('timeout', message, { sent: true })
  }
}

function whenReady(socket: Socket, ready: () => void): void {
  if (socket instanceof TLSSocket) socket.once('secureConnect', ready)
  else if (socket.connecting) socket.once('connect', ready)
  else ready()
}
