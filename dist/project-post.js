import { projectPost } from './index.js'
await projectPost()
