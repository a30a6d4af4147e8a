package migrations

// MigratorLock is the advisory lock of the process that migrates.
const MigratorLock = migratorLock

// LockTimeout is how long each statement of a migration may wait for a lock.
var LockTimeout = lockTimeout
