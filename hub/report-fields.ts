import { z } from 'zod'

export const statusSchema = z.enum(['success', 'failed', 'rolled_back'], {
  error: 'must be success, failed or rolled_back',
})

export const utcTimeSchema = z.iso
  .datetime({ offset: true, error: 'must be an ISO 8601 time' })
  .regex(/(Z|[+-]00:00)$/, { error: 'must be in UTC' })
