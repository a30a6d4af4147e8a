package main

import (
	"bufio"
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

	"deeplink/control/internal/store"
	"deeplink/control/internal/transfer"
	"deeplink/shared/catalog"
	"deeplink/shared/feed"
	"deeplink/shared/settings"
)

type linksExportCommand struct {
	LinkBaseURL settings.LinkBase `required:"" env:"LINK_BASE_URL" placeholder:"$$LINK_BASE_URL" help:"What short URLs on the shared host begin with, such as https://go.example.com."`
	Org         string            `required:"" help:"Key of the organization."`
	Format      string            `default:"ndjson" enum:"ndjson,csv" help:"ndjson: each link on a line, as the API answers it. csv: for propagationFlagssheets; tags and params are JSON in their cells, and an apostrophe precedes a value that a propagationFlagssheet would evaluate (an import removes it)."`
}

// Run implements control links export. It writes links while it reads them.
func (c *linksExportCommand) Run(t *env) error {
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	s := store.New(pool, string(c.LinkBaseURL))
	ctx, cancel := context.WithTimeout(t.ctx, commandTimeout)
	defer cancel()
	o, err := organization(ctx, s, c.Org)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(t.out, 1<<16)
	page, err := transfer.LinkWriter(out, c.Format)
	if err != nil {
		return err
	}
	if err := s.ExportLinks(t.ctx, o.ID, page); err != nil {
		return err
	}
	return out.Flush()
}

type linksImportCommand struct {
	propagationFlags
	Org          string `required:"" help:"Key of the organization."`
	Format       string `default:"ndjson" enum:"ndjson,csv" help:"ndjson: one link per line, as in an export or in a request to the API. csv: an export of control or of another service."`
	SkipExisting bool   `help:"Skip rows whose short code another link has, instead of rejecting them."`
	Report       string `help:"File for the rejected rows, one JSON object per line. Default: stderr." placeholder:"FILE"`
	File         string `arg:"" help:"File to import; - is the standard input."`
}

// Help implements kong's detailed help.
func (*linksImportCommand) Help() string {
	var text strings.Builder
	text.WriteString("Each row is validated as in the API. The domain is that of the organization with the same host, otherwise the default domain. " +
		"A row whose link exists and is equal is unchanged, so you can import a file again after a failure. A row without a short code " +
		"gets a code derived from its content. The exit code is 1 when a row was rejected.\n\n" +
		"Columns of a CSV file, as control, Bitly, Dub and Branch name them (ignoring case, spaces, _ and -; the first column with a value counts):\n\n")
	for _, line := range transfer.ColumnsHelp() {
		fmt.Fprintf(&text, "  %s\n", line) // indented, because kong would join the lines into one paragraph
	}
	text.WriteString("  host of the domain: domain, otherwise that of the short URL\n\n" +
		"The import removes an apostrophe before =, +, - or @ at the start of a cell, because exports add it. In a file of Branch (with columns that start with $ or ~) url is the short link. A row without a path gets the path of its long URL. All other columns are ignored.")
	return text.String()
}

// Run implements control links import.
func (c *linksImportCommand) Run(t *env) error {
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
	rows, err := transfer.OpenRows(io.TeeReader(in, bar), c.Format)
	if err != nil {
		return fmt.Errorf("%w: %w", errArgument, err)
	}
	pool, err := t.openPool(1)
	if err != nil {
		return err
	}
	defer pool.Close()
	encoder := json.NewEncoder(report)
	encoder.SetEscapeHTML(false)
	s := c.store(pool)
	i := &transfer.Importer{
		Store: s, Actor: operatorActor(), SkipExisting: c.SkipExisting, Report: encoder, Timeout: commandTimeout,
		Organization: func(ctx context.Context) (catalog.Organization, error) { return organization(ctx, s, c.Org) },
	}
	began := time.Now()
	err = i.Import(t.ctx, rows)
	took := time.Since(began)
	_ = bar.Finish()
	if err != nil && i.Result.Created+i.Result.Unchanged == 0 {
		return err
	}
	return errors.Join(err, c.finish(t, i, rows, took), closeReport())
}

// openImport opens the file and returns its size, -1 when unknown.
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

// openReport returns the writer for rejected rows. A second call of the close function does nothing.
func (c *linksImportCommand) openReport(t *env) (io.Writer, func() error, error) {
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

// importBar shows the progress of reading size bytes on a terminal, and nothing elsewhere.
func importBar(on io.Writer, size int64) *progressbar.ProgressBar {
	terminal, ok := on.(*os.File)
	if ok {
		info, err := terminal.Stat()
		ok = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return progressbar.NewOptions64(size, progressbar.OptionSetWriter(on), progressbar.OptionSetDescription("links"), progressbar.OptionShowBytes(true),
		progressbar.OptionThrottle(200*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionSetVisibility(ok))
}

// finish waits until all edges have what this run imported, or an earlier run that was interrupted, and prints the result.
func (c *linksImportCommand) finish(t *env, i *transfer.Importer, rows transfer.Rows, took time.Duration) error {
	result := i.Result
	result.IgnoredColumns = rows.IgnoredColumns()
	result.Seconds = took.Seconds()
	result.PerSecond = float64(result.Rows) / cmp.Or(took.Seconds(), 1)
	var err error
	if result.Created+result.Unchanged > 0 {
		result.Propagation, err = t.change(c.propagationFlags, func(ctx context.Context, s *store.Store) (feed.Change, error) { return s.Barrier(ctx) })
	}
	if result.Rejected > 0 {
		err = errors.Join(err, fmt.Errorf("%d rows were rejected", result.Rejected))
	}
	return errors.Join(t.print(result), err)
}
