import type { ClientRequest } from 'node:http'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import type { WireSettings } from '../settings.ts'
import { CONNECTION_ADVICE, type ConnectionState, explainFailure, TransientError } from './failures.ts'

type WatchSettings = Pick<WireSettings, 'timeouts' | 'signal' | 'startTimer'>

/**
 * Watches one connection. Aborts `signal` with TransientError `timeout` if the connection is not ready within
 * `connectMs`, or if the server then stays silent for `idleMs` while this client waits for it. The time that the client
 * itself takes does not count.
 */
export class ConnectionWatch {
  readonly server: string
  readonly foreign: boolean
  /** Aborted when a timeout expires, when the settings' signal is aborted, and when the connection has ended. */
  readonly signal: AbortSignal
  /** True if the connection was ready, so that bytes of the request may have left. */
  sent = false
  readonly #controller = new AbortController()
  readonly #settings: WatchSettings
  #request: ClientRequest | undefined
  #stopTimer: () => void

  constructor({ server, foreign }: Omit<ConnectionState, 'sent'>, settings: WatchSettings) {
    this.server = server
    this.foreign = foreign
    this.#settings = settings
    this.signal = AbortSignal.any([settings.signal, this.#controller.signal])
    const expire = () => this.#controller.abort(this.#unconnected())
    this.#stopTimer = settings.startTimer(settings.timeouts.connectMs, expire)
  }

  /**
   * Starts to wait for the server once the request's connection is ready. A TLS connection is ready once the
   * certificate is verified.
   */
  follow(request: ClientRequest): void {
    this.#request = request
    request.once('socket', socket => whenReady(socket, () => this.#ready()))
  }

  /** Starts to count the server's silence, because it is the server's turn. */
  awaitServer(): void {
    this.#stopTimer()
    const expire = () => this.#controller.abort(this.#silent())
    this.#stopTimer = this.#settings.startTimer(this.#settings.timeouts.idleMs, expire)
  }

  /** Stops counting, because it is this client's turn. */
  pause(): void {
    this.#stopTimer()
  }

  /**
   * Ends the connection of an answered request, even if part of the body is still to come. The signal is aborted only
   * once the request is closed, to release what still listens to it. If it were aborted at once, Node.js would create
   * two errors and format their stacks, for which V8 counts the lines of the bundle.
   */
  close(): void {
    this.pause()
    const release = (): void => this.#controller.abort()
    if (this.#request === undefined || this.#request.closed) release()
    else this.#request.once('close', release).destroy()
  }

  /**
   * Ends the connection, in any state, after an error, and returns the error to throw. If the signal is aborted, this is
   * the signal's reason; otherwise, it is the error, explained.
   */
  endWith(error: unknown): unknown {
    const reason = this.signal.aborted ? this.signal.reason : explainFailure(error, this)
    this.pause()
    this.#controller.abort()
    return reason
  }

  #ready(): void {
    this.sent = true
    this.awaitServer()
  }

  #unconnected(): TransientError {
    const message = `Could not connect to ${this.server} within ${this.#settings.timeouts.connectMs / 1000} s: ${CONNECTION_ADVICE}`
    return new TransientError('timeout', message, { sent: false })
  }

  #silent(): TransientError {
    const message = `${this.server} sent nothing for ${this.#settings.timeouts.idleMs / 1000} s: check the server and the network.`
    return new TransientError('timeout', message, { sent: true })
  }
}

function whenReady(socket: Socket, ready: () => void): void {
  // A connection to an https proxy has already been secured when a request gets it.
  if (socket instanceof TLSSocket && !socket.authorized) socket.once('secureConnect', ready)
  else if (socket.connecting) socket.once('connect', ready)
  else ready()
}
