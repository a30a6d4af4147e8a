package clicks

import (
	"strconv"
	"strings"
)

// query is a statement that is being composed. $1 is the key of the organization.
type query struct {
	conditions []string
	arguments  []any
}

func newQuery(orgKey string) *query { return &query{arguments: []any{orgKey}} }

// value adds an argument, and returns its placeholder.
func (q *query) value(v any) string {
	q.arguments = append(q.arguments, v)
	return "$" + strconv.Itoa(len(q.arguments))
}

func (q *query) where(condition string) { q.conditions = append(q.conditions, condition) }

func (q *query) all() string { return strings.Join(q.conditions, ` and `) }

// LinkFilter selects clicks by their links. All fields that are set must match.
type LinkFilter struct {
	// LinkID and DomainID are UUIDs.
	LinkID, Tag, Channel, DomainID string
}

// byLink reports whether the filter refers to the fields of links.
func (f LinkFilter) byFields() bool { return f.Tag+f.Channel+f.DomainID != "" }

// any reports whether the filter restricts anything.
func (f LinkFilter) any() bool { return f.LinkID != "" || f.byFields() }

// restrict adds the filter to a query, in which column is the id of the link.
func (f LinkFilter) restrict(q *query, column string) {
	if f.LinkID != "" {
		q.where(column + ` = ` + q.value(f.LinkID) + `::uuid`)
	}
	if !f.byFields() {
		return
	}
	condition := column + ` = any (array(select l.id from links l join organizations o on o.id = l.organization_id where o.org_key = $1`
	if f.Tag != "" {
		condition += ` and l.tags @> array[` + q.value(f.Tag) + `::text]`
	}
	if f.Channel != "" {
		condition += ` and l.channel = ` + q.value(f.Channel)
	}
	if f.DomainID != "" {
		condition += ` and l.domain_id = ` + q.value(f.DomainID) + `::uuid`
	}
	q.where(condition + `))`)
}

// names returns the names of values of an enum.
func names[T interface{ String() string }](values []T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = v.String()
	}
	return all
}
