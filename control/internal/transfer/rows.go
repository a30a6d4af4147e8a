package transfer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"deeplink/control/internal/decode"
	"deeplink/shared/catalog"
)

// MaxLine bounds a line of NDJSON in bytes: a request body, and the members that responses add.
const MaxLine = decode.MaxBody + 4<<10

// sourceRow is a row of a file to import.
type sourceRow struct {
	line int
	// body is the body of a create request without a domain. host names the domain, empty for the default domain.
	body []byte
	host string
	// err is the reason why body is nil.
	err error
	// former is the row as earlier releases read it, nil when they read it the same way.
	former *sourceRow
}

// Rows reads a file row by row. next returns io.EOF at the end, and another error when it cannot continue.
type Rows interface {
	next() (sourceRow, error)
	// IgnoredColumns returns the columns that the import does not use.
	IgnoredColumns() []string
}

// OpenRows returns the rows of in.
func OpenRows(in io.Reader, format string) (Rows, error) {
	buffered := bufio.NewReaderSize(in, MaxLine)
	// Spreadsheet programs write a byte order mark at the start of their files.
	if mark, err := buffered.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = buffered.Discard(3)
	}
	if format == CSV {
		return openTable(buffered)
	}
	return &lineRows{in: buffered}, nil
}

// lineRows reads NDJSON.
type lineRows struct {
	in   *bufio.Reader
	line int
}

func (r *lineRows) IgnoredColumns() []string { return nil }

func (r *lineRows) next() (sourceRow, error) {
	for {
		text, err := r.in.ReadSlice('\n')
		r.line++
		row := sourceRow{line: r.line}
		if errors.Is(err, bufio.ErrBufferFull) {
			row.err = fmt.Errorf("the line must be at most %d bytes", MaxLine)
			return row, r.skip()
		}
		text = bytes.TrimSpace(text)
		if len(text) > 0 && (err == nil || errors.Is(err, io.EOF)) {
			row.body, row.host, row.err = readExported(text)
			return row, nil
		}
		if err != nil {
			return sourceRow{}, err
		}
	}
}

// skip reads to the end of the line.
func (r *lineRows) skip() error {
	for {
		if _, err := r.in.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// readExported removes the domain from a link as the API returns it, because the id of a domain is valid in its own organization only.
func readExported(text []byte) (body []byte, host string, err error) {
	if err := decode.CheckJSON(text); err != nil {
		return nil, "", err
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		return nil, "", errors.New("must be a JSON object")
	}
	var domain struct {
		Host      string `json:"host"`
		IsDefault bool   `json:"isDefault"`
	}
	if value, sent := members["domain"]; sent {
		if err := json.Unmarshal(value, &domain); err != nil {
			return nil, "", errors.New("domain must be an object with a host")
		}
		delete(members, "domainId")
	}
	if domain.IsDefault {
		domain.Host = ""
	}
	body, err = plainJSON(members)
	return body, domain.Host, err
}

// tableRows reads CSV (RFC 4180).
type tableRows struct {
	in    *csv.Reader
	table table
}

func openTable(in *bufio.Reader) (*tableRows, error) {
	r := &tableRows{in: csv.NewReader(&lineBreakKeeper{in: in})}
	// Spreadsheet programs may omit empty cells at the end.
	r.in.FieldsPerRecord = -1
	r.in.ReuseRecord = true
	header, err := r.in.Read()
	if err != nil {
		return nil, fmt.Errorf("read the names of the columns: %w", err)
	}
	r.table, err = readHeader(header)
	return r, err
}

func (r *tableRows) IgnoredColumns() []string { return r.table.ignored }

func (r *tableRows) next() (sourceRow, error) {
	record, err := r.in.Read()
	if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
		// After a quote that is not closed, the reader cannot find the next row.
		if errors.Is(err, csv.ErrQuote) {
			return sourceRow{}, err
		}
		return sourceRow{line: bad.StartLine, err: bad.Err}, nil
	}
	if err != nil {
		return sourceRow{}, err
	}
	row := sourceRow{}
	row.line, _ = r.in.FieldPos(0)
	if former := formerCells(record); former != nil {
		row.former = &sourceRow{line: row.line}
		row.former.body, row.former.host, row.former.err = r.table.link(former)
	}
	for i, cell := range record {
		record[i] = restore(cell)
	}
	row.body, row.host, row.err = r.table.link(record)
	return row, nil
}

// formerCells returns the cells as earlier releases read them: with the apostrophes of [neutralize], and with LF for CRLF. It returns nil when the
// cells contain neither.
func formerCells(record []string) []string {
	var former []string
	for i, cell := range record {
		short := strings.ReplaceAll(cell, "\r\n", "\n")
		if short == cell && restore(cell) == cell {
			continue
		}
		if former == nil {
			former = slices.Clone(record)
		}
		former[i] = short
	}
	return former
}

// validate reads the row as the API does. A link without a short code gets one derived from the row, so that the same row never becomes a second
// link.
func (r sourceRow) validate(organizationID string) (catalog.Link, error) {
	if r.err != nil {
		return catalog.Link{}, r.err
	}
	if err := decode.CheckJSON(r.body); err != nil {
		return catalog.Link{}, err
	}
	link, err := catalog.ReadLink(r.body)
	if err == nil && link.ShortCode == "" {
		link.ShortCode = deriveCode(organizationID, r.host, link)
	}
	return link, err
}

// formerLink returns the link that earlier releases created from the row, on the given domain. It is nil when it is the same, or when they
// rejected the row.
func (r sourceRow) formerLink(organizationID, domainID string) *catalog.Link {
	if r.former == nil {
		return nil
	}
	link, err := r.former.validate(organizationID)
	if err != nil {
		return nil
	}
	link.DomainID = domainID
	return &link
}
