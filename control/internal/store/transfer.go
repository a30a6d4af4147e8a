package store

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

const (
	// exportPage is how many links of an export are in memory at once.
	exportPage = 1000
	// exportPageTimeout bounds the reading of a page, exportPause the time that its reader may take before the next one.
	exportPageTimeout = 30 * time.Second
	exportPause       = "10min"
)

const setExportPauseSQL = `select set_config('idle_in_transaction_session_timeout', $1, true)`

const exportedSQL = `
	select ` + linkColumns + ` from ` + linkTables + `
	where l.id = any (array(
		select l.id from links l where l.organization_id = $1 and (l.created_at, l.id) > ($2, $3::uuid) order by l.created_at, l.id limit $4))
	order by l.created_at, l.id`

// ExportLinks calls page with all links of the organization as they were at one moment, the oldest first, some at a time. It keeps one
// connection, and Postgres what it would clean up, until it returns. An error of page ends it and is returned.
func (s *Store) ExportLinks(ctx context.Context, orgID string, page func([]catalog.LinkWithDomain) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err := s.in(ctx, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, setExportPauseSQL, exportPause); err != nil {
			return err
		}
		after, id := time.Time{}, uuid.Nil.String()
		for {
			links, err := s.exported(ctx, tx, orgID, after, id)
			if err != nil || len(links) == 0 {
				return err
			}
			if err := page(links); err != nil {
				return err
			}
			last := links[len(links)-1]
			after, id = last.CreatedAt.Time, last.ID
		}
	})
	if err != nil {
		return translate("export links", err)
	}
	return nil
}

func (s *Store) exported(ctx context.Context, tx pgx.Tx, orgID string, after time.Time, id string) ([]catalog.LinkWithDomain, error) {
	ctx, cancel := context.WithTimeout(ctx, exportPageTimeout)
	defer cancel()
	rows, err := tx.Query(ctx, exportedSQL, orgID, after, id, exportPage)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (catalog.LinkWithDomain, error) {
		link, _, err := s.scanLink(row)
		return link, err
	})
}

// ImportOutcome is what became of one link of an import.
type ImportOutcome string

// The outcomes.
const (
	ImportCreated   ImportOutcome = "created"
	ImportUnchanged ImportOutcome = "unchanged" // the same link is there already
	ImportTaken     ImportOutcome = "taken"     // another link has the short code
	ImportOverQuota ImportOutcome = "over quota"
)

// ImportLinks makes those of the links that are not there yet, in one transaction, and returns what became of each, in their order. Every
// link has a short code and the id of a domain of the organization. As many are made as the quota of org.Plan leaves room for. To import the
// same again makes nothing twice, so after ErrUnavailable it is safe to. Errors: ErrAppConfigMissing, ErrDomainNotFound when a domain has
// been deleted meanwhile.
func (s *Store) ImportLinks(ctx context.Context, org catalog.Organization, links []catalog.Link) ([]ImportOutcome, error) {
	var outcomes []ImportOutcome
	err := s.write(ctx, "import links", func(tx *transaction) error {
		used, err := lockForMore(ctx, tx, org.ID)
		if err != nil {
			return err
		}
		known, err := s.withCodes(ctx, tx, org.ID, links)
		if err != nil {
			return err
		}
		var created []catalog.Link
		created, outcomes, err = sortOut(org, used, known, links)
		if err != nil || len(created) == 0 {
			return err
		}
		if err := copyLinks(ctx, tx, created); err != nil {
			return err
		}
		return s.recordAll(ctx, tx, created)
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

const withCodesSQL = `
	select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = any ($2)`

// withCodes returns the links of the organization that have one of the links' codes, by their codes in lower case.
func (s *Store) withCodes(ctx context.Context, tx pgx.Tx, orgID string, links []catalog.Link) (map[string]catalog.Link, error) {
	codes := make([]string, len(links))
	for i, l := range links {
		codes[i] = strings.ToLower(l.ShortCode)
	}
	rows, err := tx.Query(ctx, withCodesSQL, orgID, codes)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	known := make(map[string]catalog.Link)
	for rows.Next() {
		link, _, err := s.scanLink(rows)
		if err != nil {
			return nil, err
		}
		known[strings.ToLower(link.ShortCode)] = link.Link
	}
	return known, rows.Err()
}

// sortOut says what becomes of each link, and gives those that are to be made their ids. known are the links by code, to which it adds
// them: a code may stand in the import twice.
func sortOut(org catalog.Organization, used int64, known map[string]catalog.Link, links []catalog.Link) (
	created []catalog.Link, outcomes []ImportOutcome, err error,
) {
	quota := terms(org).Links
	outcomes = make([]ImportOutcome, len(links))
	for i, l := range links {
		code := strings.ToLower(l.ShortCode)
		if old, taken := known[code]; taken {
			same, err := sameLink(old, l)
			if err != nil {
				return nil, nil, err
			}
			outcomes[i] = ImportTaken
			if same {
				outcomes[i] = ImportUnchanged
			}
			continue
		}
		if quota != catalog.Unlimited && used+int64(len(created)) >= quota {
			outcomes[i] = ImportOverQuota
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, nil, err
		}
		l.ID, l.OrganizationID = id.String(), org.ID
		known[code] = l
		created = append(created, l)
		outcomes[i] = ImportCreated
	}
	return created, outcomes, nil
}

// sameLink reports whether all that clients set is the same.
func sameLink(old, l catalog.Link) (bool, error) {
	l.ID, l.OrganizationID, l.URL, l.CreatedAt, l.UpdatedAt = old.ID, old.OrganizationID, old.URL, old.CreatedAt, old.UpdatedAt
	was, err := json.Marshal(old)
	if err != nil {
		return false, err
	}
	is, err := json.Marshal(l)
	return bytes.Equal(was, is), err
}

// copiedColumns are those of insertLinkSQL, in its order.
var copiedColumns = []string{
	"id", "organization_id", "domain_id", "short_code", "path", "channel", "utm_source", "utm_medium", "utm_campaign", "utm_term",
	"utm_content", "fallback_url", "og_title", "og_description", "og_image_url", "title", "tags", "expiry", "template_id", "params", "is_active",
}

// copyLinks inserts links none of whose codes is taken. The transaction must have locked them.
func copyLinks(ctx context.Context, tx pgx.Tx, links []catalog.Link) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"links"}, copiedColumns, pgx.CopyFromSlice(len(links), func(i int) ([]any, error) {
		return append([]any{links[i].ID, links[i].OrganizationID}, linkArguments(links[i])...), nil
	}))
	return err
}

var recordedColumns = []string{"id", "organization_id", "actor_type", "actor_id", "action", "target_type", "target_id", "detail"}

// recordAll adds an entry for each of the links to the audit trail, as record does for one. The actor must be an operator, or nobody.
func (s *Store) recordAll(ctx context.Context, tx pgx.Tx, links []catalog.Link) error {
	if s.actor == (Actor{}) {
		return nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"audit_log"}, recordedColumns, pgx.CopyFromSlice(len(links), func(i int) ([]any, error) {
		e := linkEntry(LinkCreated, links[i], nil)
		id, err := uuid.NewV7()
		if err != nil {
			return nil, err
		}
		detail, err := json.Marshal(e.detail)
		return []any{id.String(), e.organizationID, string(s.actor.Type), orNull(s.actor.ID), string(e.action), string(e.target), e.targetID, detail}, err
	}))
	return err
}
