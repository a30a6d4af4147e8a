package origin

import (
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"deeplink/shared/catalog"
)

// columns reads the raw values of a row in order. The results are copies. err is the first error.
type columns struct {
	fields []pgconn.FieldDescription
	values [][]byte
	types  *pgtype.Map
	at     int
	err    error
}

func columnsOf(rows pgx.Rows) columns {
	return columns{fields: rows.FieldDescriptions(), values: rows.RawValues(), types: rows.TypeMap()}
}

// isNull reports whether the next value is null, and does not read it.
func (c *columns) isNull() bool { return c.values[c.at] == nil }

func (c *columns) next() []byte {
	c.at++
	return c.values[c.at-1]
}

// string returns a text; null is empty.
func (c *columns) string() string { return string(c.next()) }

// text returns a text, or nil.
func (c *columns) text() *string {
	if c.isNull() {
		c.at++
		return nil
	}
	text := c.string()
	return &text
}

// bool returns a boolean, which may be in binary or text format.
func (c *columns) bool() bool {
	value := c.next()
	return len(value) == 1 && (value[0] == 1 || value[0] == 't')
}

func (c *columns) texts() (all []string) {
	c.scan(&all)
	return all
}

func (c *columns) json() json.RawMessage {
	var raw []byte
	c.scan(&raw)
	return raw
}

func (c *columns) time() *catalog.Time {
	if c.isNull() {
		c.at++
		return nil
	}
	var t catalog.Time
	c.scan(&t.Time)
	return &t
}

// scan reads a value of another type as pgx does.
func (c *columns) scan(to any) {
	field := c.fields[c.at]
	value := c.next()
	if value == nil {
		return
	}
	if err := c.types.Scan(field.DataTypeOID, field.Format, value, to); err != nil && c.err == nil {
		c.err = pgx.ScanArgError{ColumnIndex: c.at - 1, FieldName: field.Name, Err: err}
	}
}
