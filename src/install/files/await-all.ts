/**
 * Returns the results of all pieces of work once all have ended. If any failed, throws the first error in the order of
 * the arguments. Unlike Promise.all, leaves nothing running, such as a child that is being ended after a cancel.
 */
export async function awaitAll<const Works extends readonly unknown[]>(
  ...works: Works
): Promise<{ -readonly [K in keyof Works]: Awaited<Works[K]> }> {
  const ends = await Promise.allSettled(works)
  const failed = ends.find(end => end.status === 'rejected')
  if (failed !== undefined) throw failed.reason
  return (await Promise.all(works)) as { -readonly [K in keyof Works]: Awaited<Works[K]> }
}
