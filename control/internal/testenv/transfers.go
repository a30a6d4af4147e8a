package testenv

import "time"

// CompleteTransfersIn sets when all transfers of domains complete, and keeps the jobs of running controls away from them.
func (w *Env) CompleteTransfersIn(left time.Duration) {
	w.T.Helper()
	w.Exec(`update domain_transfers set started_at = now() + $1::interval - interval '7 days', completes_at = now() + $1::interval, check_at = 'infinity'`, left)
}
