package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/postgres"
)

// Errors of calls that had no effect, except ErrUnavailable.
var (
	ErrNotFound         = errors.New("not found")
	ErrDomainNotFound   = errors.New("domain not found in the organization")
	ErrShortCodeTaken   = errors.New("short code already used in the organization")
	ErrQuotaExceeded    = errors.New("link quota exceeded")
	ErrAppConfigMissing = errors.New("no app config registered")
	ErrOrgKeyTaken      = errors.New("organization key already used")
	ErrExternalIDTaken  = errors.New("external id already used")
	ErrHostTaken        = errors.New("host already used")
	// ErrLinkExternalIDTaken: another link of the organization has the external id.
	ErrLinkExternalIDTaken = errors.New("external id already used by a link of the organization")
	// ErrKeyReused: an earlier request with the same idempotency key was another one. ErrKeyInProgress: such a request is still running.
	ErrKeyReused     = errors.New("idempotency key already used for another request")
	ErrKeyInProgress = errors.New("request with the idempotency key still running")
	ErrHostOwned     = errors.New("another organization has the host, and its TXT record is present")
	ErrDomainInUse   = errors.New("domain still has links")
	ErrDomainDefault = errors.New("the default domain cannot be deleted")
	ErrDomainQuota   = errors.New("custom domain quota exceeded")
	// ErrNoActor is wrapped by every write with the zero Actor, which is a defect of the caller.
	ErrNoActor = errors.New("change without an actor")
	// ErrBusy is wrapped by calls that timed out waiting for a place in the share of their organization or device. They had no effect.
	ErrBusy = errors.New("too many calls of the organization or device are waiting")
	// ErrLocked is wrapped by calls that waited for LockTimeout for a lock that another transaction holds. They had no effect.
	ErrLocked = errors.New("locked by another transaction")
	// ErrUnavailable is wrapped by every failure to reach Postgres in time, never by the failure of a statement. A write that failed with it
	// may have taken effect: the response to its commit was lost.
	ErrUnavailable = errors.New("database unavailable")
)

// constraints maps constraints to the errors of their violations.
var constraints = map[string]error{
	"links_short_code":                     ErrShortCodeTaken,
	"links_external_id":                    ErrLinkExternalIDTaken,
	"links_organization_id_domain_id_fkey": ErrDomainNotFound,
	"organizations_org_key_key":            ErrOrgKeyTaken,
	"organizations_external_id_key":        ErrExternalIDTaken,
	"domains_verified_host":                ErrHostTaken,
	"domains_organization_host":            ErrHostTaken,
	"domains_organization_id_fkey":         ErrNotFound,
	"app_configs_organization_id_fkey":     ErrNotFound,
}

// Codes of Postgres (its appendix A).
const (
	deadlockDetected     = "40P01"
	serializationFailure = "40001"
	foreignKeyViolation  = "23503"
	uniqueViolation      = "23505"
)

const (
	maxTries   = 3
	retryPause = 50 * time.Millisecond
)

// retry runs f, and runs it again after failures that had no effect and may not repeat. It translates the error.
func retry(what string, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil {
			return nil
		}
		switch postgres.Code(err) {
		case deadlockDetected, serializationFailure:
			if try < maxTries {
				// During this pause the other transaction gets the lock that it waits for. Otherwise the deadlock could repeat.
				time.Sleep(retryPause)
				continue
			}
		case postgres.PlanChanged:
			// Both batches of a write have such statements. Nothing is applied twice, because the commit is the last statement.
			if try < postgres.MaxRenewals {
				continue
			}
		case "":
			// The connection was dead before anything was sent.
			if try < maxTries && pgconn.SafeToRetry(err) {
				continue
			}
		}
		return translate(what, err)
	}
}

func translate(what string, err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	var failed *pgconn.PgError
	if errors.As(err, &failed) && (failed.Code == uniqueViolation || failed.Code == foreignKeyViolation) {
		if meaning, known := constraints[failed.ConstraintName]; known {
			return meaning
		}
	}
	switch err {
	case ErrNotFound, ErrDomainNotFound, ErrShortCodeTaken, ErrQuotaExceeded, ErrAppConfigMissing, ErrHostTaken, ErrDomainInUse,
		ErrDomainDefault, ErrDomainQuota, ErrRenewing, ErrOrganizationNotFound, ErrLinkInvalid,
		ErrLinkExternalIDTaken, ErrKeyReused:
		return err
	}
	if postgres.Code(err) == postgres.LockNotAvailable {
		return fmt.Errorf("%s: %w: %w", what, ErrLocked, err)
	}
	if postgres.Unreachable(err) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
