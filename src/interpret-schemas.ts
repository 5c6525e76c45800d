import { z } from 'zod'

// A run uses each schema once or twice, and compiling a parser for each costs more than that saves. Schemas ask for it when they
// are made, so this is to be imported before them.
z.config({ jitless: true })
