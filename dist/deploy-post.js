import { deployPost } from './index.js'
await deployPost()
