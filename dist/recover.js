import { recover } from './index.js'
await recover()
