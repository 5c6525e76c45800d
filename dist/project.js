import { project } from './index.js'
await project()
