package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"deeplink/control/internal/relay"
	"deeplink/control/internal/store"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
)

// importBatch is how many links are made in one transaction. Other writers of the organization wait for it, some tens of milliseconds.
const importBatch = 500

type linksImportCommand struct {
	spread
	Org          string `required:"" help:"Key of the organization."`
	Format       string `default:"ndjson" enum:"ndjson,csv" help:"ndjson: a link on each line, as an export has it or the API takes it. csv: an export, or the file of another service."`
	SkipExisting bool   `help:"Pass over rows whose short code another link has, instead of rejecting them."`
	Report       string `help:"File for the rejected rows, one JSON object each. Printed to stderr when it is not given." placeholder:"FILE"`
	File         string `arg:"" help:"File to import; - is the standard input."`
}

// Help implements kong's detailed help.
func (*linksImportCommand) Help() string {
	var text strings.Builder
	text.WriteString("Each row is judged as the API would judge it. The domain is the organization's own of the same host, otherwise the default one. " +
		"Rows that are there already and equal are unchanged, so a file may be imported again after a failure; a row without a short code " +
		"gets one that follows from what it says. The exit code is 1 when a row was rejected.\n\n" +
		"Columns of a CSV file, as this service, Bitly, Dub and Branch call them (case, blanks, _ and - do not matter; the first filled one counts):\n\n")
	for _, field := range importFields {
		names := make([]string, len(field.columns))
		for i, column := range field.columns {
			names[i] = column.name
		}
		// Indented, or kong would make one paragraph of all.
		fmt.Fprintf(&text, "  %s: %s\n", field.member, strings.Join(names, ", "))
	}
	text.WriteString("  host of the domain: domain, otherwise that of the short URL\n\n" +
		"In a file of Branch (with columns in $ or ~) url is the short link. Without a path, that of the long URL is taken. All other columns are ignored.")
	return text.String()
}

// imported is the result of an import.
type imported struct {
	Rows      int `json:"rows"`
	Created   int `json:"created"`
	Unchanged int `json:"unchanged"`
	Skipped   int `json:"skipped"`
	Rejected  int `json:"rejected"`
	// DefaultDomain counts the rows that name a host which is no domain of the organization.
	DefaultDomain  int               `json:"defaultDomain"`
	IgnoredColumns []string          `json:"ignoredColumns,omitempty"`
	Seconds        float64           `json:"seconds"`
	PerSecond      float64           `json:"perSecond"`
	Propagation    relay.Propagation `json:"propagation,omitempty"`
}

// refusal is a rejected row as the report has it.
type refusal struct {
	Line      int      `json:"line"`
	ShortCode string   `json:"shortCode,omitempty"`
	Code      string   `json:"code"`
	Messages  []string `json:"messages"`
}

// The codes of refusals.
const (
	refusedQuota   = "QUOTA_EXCEEDED"
	refusedInvalid = "INVALID"
	refusedDomain  = "DOMAIN_NOT_FOUND"
	refusedTaken   = "SHORT_CODE_TAKEN"
)

// Run implements control links import.
func (c *linksImportCommand) Run(t *task) error {
	in, size, err := openImport(c.File)
	if err != nil {
		return err
	}
	defer in.Close()
	report, closeReport, err := c.openReport(t)
	if err != nil {
		return err
	}
	defer closeReport()
	bar := importBar(t.err, size)
	rows, err := openRows(io.TeeReader(in, bar), c.Format)
	if err != nil {
		return err
	}
	pool, err := openPool(t.database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	i := &importer{task: t, command: c, store: operatorStore(pool, c.LinkBaseURL), report: json.NewEncoder(report)}
	i.report.SetEscapeHTML(false)
	began := time.Now()
	err = i.run(rows)
	took := time.Since(began)
	_ = bar.Finish()
	if err != nil && i.result.Created+i.result.Unchanged == 0 {
		return err
	}
	return errors.Join(err, i.conclude(rows, took), closeReport())
}

// openImport opens the file and says how long it is, -1 when nobody knows.
func openImport(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(os.Stdin), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", errArgument, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

// openReport returns where rejected rows go. To close it twice does nothing more.
func (c *linksImportCommand) openReport(t *task) (io.Writer, func() error, error) {
	if c.Report == "" {
		return t.err, func() error { return nil }, nil
	}
	file, err := os.Create(c.Report)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errArgument, err)
	}
	return file, func() error {
		if err := file.Close(); !errors.Is(err, os.ErrClosed) {
			return err
		}
		return nil
	}, nil
}

// importBar shows on a terminal how much of size bytes is read. Elsewhere it shows nothing.
func importBar(on io.Writer, size int64) *progressbar.ProgressBar {
	terminal, ok := on.(*os.File)
	if ok {
		info, err := terminal.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(on), progressbar.OptionSetDescription("links"), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetVisibility(ok))
}

// importer imports one file.
type importer struct {
	task    *task
	command *linksImportCommand
	store   *store.Store
	report  *json.Encoder
	domains organizationDomains
	result  imported
	pending []pendingLink // judged and not yet sent to Postgres
}

// pendingLink is a link of the row on a line.
type pendingLink struct {
	line int
	link catalog.Link
}

// organizationDomains are the domains of the organization: ids by host in lower case, the default one's under "".
type organizationDomains struct {
	byHost map[string]string
	ids    map[string]bool
}

func (i *importer) run(rows importRows) error {
	o, err := i.begin()
	if err != nil {
		return err
	}
	for {
		row, err := rows.next()
		if errors.Is(err, io.EOF) {
			return i.flush()
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read %s: %w", i.command.File, err), i.flush())
		}
		if err := i.add(row, o.ID); err != nil {
			return err
		}
		if len(i.pending) == importBatch {
			if err := i.flush(); err != nil {
				return err
			}
		}
	}
}

// begin finds the organization and its domains.
func (i *importer) begin() (catalog.Organization, error) {
	ctx, cancel := context.WithTimeout(i.task.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, i.store, i.command.Org)
	if err != nil {
		return o, err
	}
	if o.Plan == nil {
		return o, fmt.Errorf("organization %q has no plan, and so no room for links", i.command.Org)
	}
	all, err := i.store.Domains(ctx, o.ID)
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

// add judges a row.
func (i *importer) add(row importRow, organizationID string) error {
	i.result.Rows++
	link, err := row.judge(organizationID)
	if err != nil {
		return i.reject(refusal{row.line, "", refusedInvalid, messages(err)})
	}
	id, known := i.domains.byHost[strings.ToLower(row.host)]
	switch {
	case link.DomainID == "" && known:
		link.DomainID = id
	case link.DomainID == "":
		link.DomainID = i.domains.byHost[""]
		i.result.DefaultDomain++
	case !i.domains.ids[link.DomainID]:
		return i.reject(refusal{row.line, link.ShortCode, refusedDomain, []string{"domainId " + store.ErrDomainNotFound.Error()}})
	}
	i.pending = append(i.pending, pendingLink{row.line, link})
	return nil
}

// messages says what is wrong with a row, one message for each field.
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

func (i *importer) reject(r refusal) error {
	i.result.Rejected++
	return i.report.Encode(r)
}

// flush makes the links that are pending. The plan is read anew: it may be another one since the last time.
func (i *importer) flush() error {
	if len(i.pending) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(i.task.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, i.store, i.command.Org)
	if err != nil {
		return err
	}
	links := make([]catalog.Link, len(i.pending))
	for n, p := range i.pending {
		links[n] = p.link
	}
	outcomes, err := i.store.ImportLinks(ctx, o, links)
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

func (i *importer) count(p pendingLink, outcome store.ImportOutcome) error {
	switch outcome {
	case store.ImportCreated:
		i.result.Created++
	case store.ImportUnchanged:
		i.result.Unchanged++
	case store.ImportTaken:
		if i.command.SkipExisting {
			i.result.Skipped++
			return nil
		}
		return i.reject(refusal{p.line, p.link.ShortCode, refusedTaken, []string{store.ErrShortCodeTaken.Error()}})
	case store.ImportOverQuota:
		return i.reject(refusal{p.line, p.link.ShortCode, refusedQuota, []string{store.ErrQuotaExceeded.Error()}})
	}
	return nil
}

// conclude waits until the edges know what was imported, by this run or by one before it that was broken off, and prints the result.
func (i *importer) conclude(rows importRows, took time.Duration) error {
	i.result.IgnoredColumns = rows.ignored()
	i.result.Seconds = took.Seconds()
	i.result.PerSecond = float64(i.result.Rows) / cmp.Or(took.Seconds(), 1)
	var err error
	if i.result.Created+i.result.Unchanged > 0 {
		i.result.Propagation, err = i.task.change(i.command.spread, func(ctx context.Context, s *store.Store) (feed.Change, error) { return s.Barrier(ctx) })
	}
	if i.result.Rejected > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows were rejected", i.result.Rejected))
	}
	return errors.Join(i.task.print(i.result), err)
}
