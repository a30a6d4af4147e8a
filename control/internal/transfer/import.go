package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
)

// batchSize is how many links one transaction creates. Other writers of the organization wait for it, for some 10 ms.
const batchSize = 500

// Result is the result of an import, as the command prints it.
type Result struct {
	Rows      int `json:"rows"`
	Created   int `json:"created"`
	Unchanged int `json:"unchanged"`
	Skipped   int `json:"skipped"`
	Rejected  int `json:"rejected"`
	// DefaultDomain counts the rows with a host that is no domain of the organization.
	DefaultDomain  int      `json:"defaultDomain"`
	IgnoredColumns []string `json:"ignoredColumns,omitempty"`
	Seconds        float64  `json:"seconds"`
	PerSecond      float64  `json:"perSecond"`
	// Propagation is set after the wait for the edges.
	Propagation relay.Propagation `json:"propagation,omitempty"`
}

// RejectedRow is a rejected row as the report shows it.
type RejectedRow struct {
	Line      int      `json:"line"`
	ShortCode string   `json:"shortCode,omitempty"`
	Code      string   `json:"code"`
	Messages  []string `json:"messages"`
}

// Why a row was rejected.
const (
	codeQuota   = "QUOTA_EXCEEDED"
	codeInvalid = "INVALID"
	codeDomain  = "DOMAIN_NOT_FOUND"
	codeTaken   = "SHORT_CODE_TAKEN"
	// codeExternalIDTaken is the code of the API.
	codeExternalIDTaken = "EXTERNAL_ID_TAKEN"
)

// Importer imports the rows of one file.
type Importer struct {
	Store *store.Store
	// Organization reads the organization that gets the links. Each batch reads it again: it may have been suspended meanwhile.
	Organization func(context.Context) (catalog.Organization, error)
	Actor        store.Actor
	// SkipExisting counts rows whose short code another link has as skipped. Otherwise it rejects them.
	SkipExisting bool
	// Report receives the rejected rows.
	Report *json.Encoder
	// Timeout bounds a batch.
	Timeout time.Duration
	// Result is what was imported so far.
	Result Result

	domains organizationDomains
	pending []pendingLink // valid and not yet sent to Postgres
}

// pendingLink is the link of the row on a line.
type pendingLink struct {
	line int
	store.ImportedLink
}

// organizationDomains are the domains of the organization. byHost has their ids by host in lower case, and the default domain under "".
type organizationDomains struct {
	byHost map[string]string
	ids    map[string]bool
}

// Import imports all rows. After an error, the batches before it are imported.
func (i *Importer) Import(ctx context.Context, rows Rows) error {
	o, err := i.readDomains(ctx)
	if err != nil {
		return err
	}
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			return i.flush(ctx)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read the file: %w", err), i.flush(ctx))
		}
		if err := i.add(row, o.ID); err != nil {
			return err
		}
		if len(i.pending) == batchSize {
			if err := i.flush(ctx); err != nil {
				return err
			}
		}
	}
}

// readDomains reads the organization and its domains.
func (i *Importer) readDomains(ctx context.Context) (catalog.Organization, error) {
	ctx, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	o, err := i.Organization(ctx)
	if err != nil {
		return o, err
	}
	if o.Plan == nil {
		return o, fmt.Errorf("organization %q has no plan, so it cannot have links; set one with control org plan", o.OrgKey)
	}
	all, err := i.Store.Domains(ctx, o.ID)
	i.domains = organizationDomains{make(map[string]string), make(map[string]bool)}
	for _, d := range all {
		i.domains.ids[d.ID] = true
		if d.IsDefault {
			i.domains.byHost[""] = d.ID
		} else {
			i.domains.byHost[d.Host] = d.ID
		}
	}
	return o, err
}

// add validates a row, and adds it to the batch or rejects it.
func (i *Importer) add(row sourceRow, organizationID string) error {
	i.Result.Rows++
	link, err := row.validate(organizationID)
	if err != nil {
		return i.reject(RejectedRow{row.line, "", codeInvalid, messages(err)})
	}
	id, known := i.domains.byHost[strings.ToLower(row.host)]
	switch {
	case link.DomainID == "" && known:
		link.DomainID = id
	case link.DomainID == "":
		link.DomainID = i.domains.byHost[""]
		i.Result.DefaultDomain++
	case !i.domains.ids[link.DomainID]:
		return i.reject(RejectedRow{row.line, link.ShortCode, codeDomain, []string{"domainId " + store.ErrDomainNotFound.Error()}})
	}
	i.pending = append(i.pending, pendingLink{row.line, store.ImportedLink{Link: link, Former: row.formerLink(organizationID, link.DomainID)}})
	return nil
}

// messages returns the errors of a row, one message for each field.
func messages(err error) []string {
	var invalid catalog.Invalid
	if !errors.As(err, &invalid) {
		return []string{err.Error()}
	}
	all := make([]string, len(invalid.Fields))
	for i, field := range invalid.Fields {
		all[i] = field.Message
	}
	return all
}

func (i *Importer) reject(r RejectedRow) error {
	i.Result.Rejected++
	return i.Report.Encode(r)
}

// flush creates the links of the batch in one transaction.
func (i *Importer) flush(ctx context.Context) error {
	if len(i.pending) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, i.Timeout)
	defer cancel()
	o, err := i.Organization(ctx)
	if err != nil {
		return err
	}
	links := make([]store.ImportedLink, len(i.pending))
	for n, p := range i.pending {
		links[n] = p.ImportedLink
	}
	outcomes, err := i.Store.ImportLinks(ctx, i.Actor, o.ID, links)
	if err != nil {
		return err
	}
	for n, p := range i.pending {
		if err := i.count(p, outcomes[n]); err != nil {
			return err
		}
	}
	i.pending = i.pending[:0]
	return nil
}

func (i *Importer) count(p pendingLink, outcome store.ImportOutcome) error {
	switch outcome {
	case store.ImportCreated:
		i.Result.Created++
	case store.ImportUnchanged:
		i.Result.Unchanged++
	case store.ImportTaken:
		if i.SkipExisting {
			i.Result.Skipped++
			return nil
		}
		return i.reject(RejectedRow{p.line, p.Link.ShortCode, codeTaken, []string{store.ErrShortCodeTaken.Error()}})
	case store.ImportExternalIDTaken:
		return i.reject(RejectedRow{p.line, p.Link.ShortCode, codeExternalIDTaken, []string{store.ErrLinkExternalIDTaken.Error()}})
	case store.ImportOverQuota:
		return i.reject(RejectedRow{p.line, p.Link.ShortCode, codeQuota, []string{store.ErrQuotaExceeded.Error()}})
	}
	return nil
}
