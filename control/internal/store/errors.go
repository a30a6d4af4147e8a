package store

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"deeplink/shared/postgres"
)

// What the store answers instead of doing what it was asked.
var (
	ErrNotFound         = errors.New("not found")
	ErrDomainNotFound   = errors.New("domain not found in the organization")
	ErrShortCodeTaken   = errors.New("short code already used in the organization")
	ErrQuotaExceeded    = errors.New("link quota exceeded")
	ErrAppConfigMissing = errors.New("no app config registered")
	ErrOrgKeyTaken      = errors.New("organization key already used")
	ErrExternalIDTaken  = errors.New("external id already used")
	ErrHostTaken        = errors.New("host already used")
	ErrDomainInUse      = errors.New("domain still has links")
	ErrDomainDefault    = errors.New("default domain stays")
	ErrDomainQuota      = errors.New("as many domains as an organization may have")
	// ErrUnavailable is wrapped by every failure to reach Postgres in time, never by the failure of a statement. A write
	// that failed with it may have happened: its commit was sent and the answer lost.
	ErrUnavailable = errors.New("database unavailable")
)

// constraints tells what the violation of a constraint means.
var constraints = map[string]error{
	"links_short_code":                     ErrShortCodeTaken,
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

// retry runs f again when nothing of it has happened and the next try may succeed, and translates its error.
func retry(what string, f func() error) error {
	for try := 1; ; try++ {
		err := f()
		if err == nil {
			return nil
		}
		switch postgres.Code(err) {
		case deadlockDetected, serializationFailure:
			if try < maxTries {
				// The other transaction takes the lock that it waits for in this time, or it would be taken from it again.
				time.Sleep(retryPause)
				continue
			}
		case postgres.PlanChanged:
			// A migration changed what a cached statement answers: its first run on each connection fails and renews it.
			if try == 1 {
				continue
			}
		case "":
			// The connection was found dead before anything was sent on it.
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
		ErrDomainDefault, ErrDomainQuota:
		return err
	}
	if postgres.Unreachable(err) && !errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%s: %w: %w", what, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
