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
	// exportPage is the number of links per page of an export, and so in memory at once.
	exportPage = 1000
	// exportPageTimeout bounds the query for a page, exportPause the time that the caller may take before the next page.
	exportPageTimeout = 30 * time.Second
	exportPause       = "10min"
)

const setExportPauseSQL = `select set_config('idle_in_transaction_session_timeout', $1, true)`

// ExportLinks calls page with all links of the organization from one snapshot, page by page, the oldest first. Until it returns, it holds one
// connection, and vacuum cannot remove rows that were deleted since the snapshot. It stops at an error of page and returns it.
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

// ImportOutcome is the result for one link of an import.
type ImportOutcome string

// The outcomes.
const (
	ImportCreated   ImportOutcome = "created"
	ImportUnchanged ImportOutcome = "unchanged" // the same link already exists
	ImportTaken     ImportOutcome = "taken"     // another link has the short code
	// ImportExternalIDTaken: another link has the external id.
	ImportExternalIDTaken ImportOutcome = "external id taken"
	ImportOverQuota       ImportOutcome = "over quota"
)

// ImportedLink is a link of an import.
type ImportedLink struct {
	Link catalog.Link
	// Former is what earlier releases made of the same row of a file, nil if they made the same link. If Former exists, the row is
	// ImportUnchanged.
	Former *catalog.Link
}

// ImportLinks creates the links that do not exist yet, in one transaction, and returns an outcome per link, in order. Every link must have a
// short code and the id of a domain of the organization. It creates as many links as the quota allows. A repeated import creates nothing
// twice, so it is safe after ErrUnavailable. Errors: ErrAppConfigMissing, ErrDomainNotFound if a domain was deleted meanwhile.
func (s *Store) ImportLinks(ctx context.Context, actor Actor, orgID string, links []ImportedLink) ([]ImportOutcome, error) {
	var outcomes []ImportOutcome
	err := s.write(ctx, actor, orgID, "import links", func(tx *transaction) error {
		locked, err := lockForImport(ctx, tx, orgID, Unconditional)
		if err != nil {
			return err
		}
		known, err := s.withCodes(ctx, tx, orgID, links)
		if err != nil {
			return err
		}
		var created []catalog.Link
		externalIDs, err := withExternalIDs(ctx, tx, orgID, links)
		if err != nil {
			return err
		}
		if created, outcomes, err = sortOut(locked, known, externalIDs, links); err != nil {
			return err
		}
		if len(created) > 0 {
			if err := copyLinks(ctx, tx, created); err != nil {
				return err
			}
			if err := tx.recordAll(ctx, LinkCreated, created); err != nil {
				return err
			}
		}
		_, err = tx.finish(ctx, entry{})
		return err
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// withCodes returns the links of the organization that have one of the links' codes, by their codes in lower case.
func (s *Store) withCodes(ctx context.Context, tx *transaction, orgID string, links []ImportedLink) (map[string]catalog.Link, error) {
	codes := make([]string, 0, len(links))
	for _, l := range links {
		codes = append(codes, strings.ToLower(l.Link.ShortCode))
		if l.Former != nil {
			codes = append(codes, strings.ToLower(l.Former.ShortCode))
		}
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

// withExternalIDs returns which of the links' external ids the organization has.
func withExternalIDs(ctx context.Context, tx *transaction, orgID string, links []ImportedLink) (map[string]bool, error) {
	var wanted []string
	for _, l := range links {
		if l.Link.ExternalID != nil {
			wanted = append(wanted, *l.Link.ExternalID)
		}
	}
	taken := make(map[string]bool)
	if wanted == nil {
		return taken, nil
	}
	rows, err := tx.Query(ctx, externalIDsTakenSQL, orgID, wanted)
	if err != nil {
		return nil, err
	}
	var externalID string
	_, err = pgx.ForEachRow(rows, []any{&externalID}, func() error {
		taken[externalID] = true
		return nil
	})
	return taken, err
}

// sortOut decides the outcome of each link and gives the new ones their ids. known maps codes to existing links, and externalIDs are those
// that are taken; sortOut adds the new ones, because an import may contain a code or an external id twice.
func sortOut(locked lockedLinks, known map[string]catalog.Link, externalIDs map[string]bool, links []ImportedLink) (
	created []catalog.Link, outcomes []ImportOutcome, err error,
) {
	outcomes = make([]ImportOutcome, len(links))
	for i, l := range links {
		if outcomes[i], err = l.among(known); err != nil {
			return nil, nil, err
		}
		if outcomes[i] != ImportCreated {
			continue
		}
		if l.Link.ExternalID != nil && externalIDs[*l.Link.ExternalID] {
			outcomes[i] = ImportExternalIDTaken
			continue
		}
		if locked.full(int64(len(created))) {
			outcomes[i] = ImportOverQuota
			continue
		}
		id, err := uuid.NewV7()
		if err != nil {
			return nil, nil, err
		}
		link := l.Link
		link.ID, link.OrganizationID = id.String(), locked.organization.ID
		known[strings.ToLower(link.ShortCode)] = link
		if link.ExternalID != nil {
			externalIDs[*link.ExternalID] = true
		}
		created = append(created, link)
	}
	return created, outcomes, nil
}

// among returns the outcome of the link, given the known ones by code: ImportUnchanged, ImportTaken or ImportCreated.
func (l ImportedLink) among(known map[string]catalog.Link) (ImportOutcome, error) {
	outcome := ImportCreated
	for _, reading := range []*catalog.Link{&l.Link, l.Former} {
		if reading == nil {
			continue
		}
		old, taken := known[strings.ToLower(reading.ShortCode)]
		if !taken {
			continue
		}
		same, err := sameLink(old, *reading)
		switch {
		case err != nil:
			return "", err
		case same:
			return ImportUnchanged, nil
		case reading == &l.Link:
			outcome = ImportTaken
		}
	}
	return outcome, nil
}

// sameLink reports whether all fields that clients set are equal.
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
	"external_id",
}

// copyLinks inserts links whose codes are all free. The transaction must have locked them.
func copyLinks(ctx context.Context, tx *transaction, links []catalog.Link) error {
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"links"}, copiedColumns, pgx.CopyFromSlice(len(links), func(i int) ([]any, error) {
		return append([]any{links[i].ID, links[i].OrganizationID}, linkArguments(links[i])...), nil
	}))
	return err
}
