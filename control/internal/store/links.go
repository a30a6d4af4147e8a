package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/catalog"
)

// LinkFilter says which links to list, and which page of them. Empty filters match every link.
type LinkFilter struct {
	// Page counts from 1, Limit is the size of a page; both must be positive.
	Page, Limit int
	IsActive    *bool
	// Search must be part of the title, path or short code, without regard to case.
	Search string
	// Tag, Channel and DomainID (a UUID) must be equal.
	Tag, Channel, DomainID, ExternalID string
}

// Links returns a page of the links that match, the newest first, and the total number of matches, both from one snapshot. A page past the
// end is empty. A list that may read very many links waits for the organization's share of such lists.
func (s *Store) Links(ctx context.Context, orgID string, f LinkFilter) (links []catalog.LinkWithDomain, total int64, err error) {
	if f.long() {
		leave, err := enter(ctx, s.shares.lists, orgID, "list links")
		if err != nil {
			return nil, 0, err
		}
		defer leave()
	}
	err = s.snapshot(ctx, "list links", func(tx pgx.Tx) error {
		links = []catalog.LinkWithDomain{}
		rare, err := rareWord(ctx, tx, orgID, f.Search)
		if err != nil {
			return err
		}
		l := newListing(orgID, f, rare)
		var all int64
		sql, arguments := l.count()
		if err := tx.QueryRow(ctx, sql, arguments...).Scan(&all, &total, &l.found); err != nil {
			return err
		}
		// Compare before the multiplication, so that the offset of a very high page cannot overflow.
		if int64(f.Page-1) > total/int64(f.Limit) {
			return nil
		}
		sql, arguments = l.page(all, total)
		rows, err := tx.Query(ctx, sql, arguments...)
		if err != nil {
			return err
		}
		links, err = pgx.AppendRows(links, rows, func(row pgx.CollectableRow) (catalog.LinkWithDomain, error) {
			link, _, err := s.scanLink(row)
			return link, err
		})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return links, total, nil
}

// listing is a list of one organization's links, as SQL.
type listing struct {
	where        string
	arguments    []any
	filtered     bool
	searched     bool       // uses the trigram index
	skip, length int64      // links before the page, and on it
	found        [][16]byte // the ids of all matches, if a search found few
}

// newListing returns the listing of a filter. rare is the result of [rareWord] for its search.
func newListing(orgID string, f LinkFilter, rare string) listing {
	l := listing{where: `l.organization_id = $1`, arguments: []any{orgID}, length: int64(f.Limit), skip: f.skip()}
	if f.IsActive != nil {
		l.match(`l.is_active = $n`, *f.IsActive)
	}
	if f.Search != "" {
		// A shorter search has no trigram and reads all links of the organization, so keeping the found ids would not help.
		l.searched = utf8.RuneCountInString(f.Search) >= trigram
		if pattern := "%" + wildcards.Replace(f.Search) + "%"; rare == "" {
			l.match(`(l.title ilike $n or l.path ilike $n or l.short_code ilike $n)`, pattern)
		} else {
			l.match(`(l.title ilike $n or l.path ilike $n or l.short_code ilike $n)`, "%"+rare+"%")
			// No index matches these expressions, so Postgres only filters what the rare word has found.
			l.match(`(l.title || '' ilike $n or l.path || '' ilike $n or l.short_code || '' ilike $n)`, pattern)
		}
	}
	if f.Tag != "" {
		l.match(`l.tags @> array[$n::text]`, f.Tag)
	}
	if f.Channel != "" {
		l.match(`l.channel = $n`, f.Channel)
	}
	if f.DomainID != "" {
		l.match(`l.domain_id = $n`, f.DomainID)
	}
	if f.ExternalID != "" {
		l.match(`l.external_id = $n`, f.ExternalID)
	}
	return l
}

// wildcards escapes the wildcards of ILIKE.
var wildcards = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// match adds a condition, in which $n is value.
func (l *listing) match(condition string, value any) {
	l.arguments = append(l.arguments, value)
	l.where += ` and ` + strings.ReplaceAll(condition, "$n", "$"+strconv.Itoa(len(l.arguments)))
	l.filtered = true
}

// withPlan makes Postgres plan each filtered query for its values: their numbers of matches differ too much for one generic plan.
func (l *listing) withPlan(arguments []any) []any {
	if !l.filtered {
		return arguments
	}
	return append([]any{pgx.QueryExecModeCacheDescribe}, arguments...)
}

// farAway is the offset from which a page counts as an expensive list: Postgres reads as many index entries to get there.
const farAway = 10_000

// skip returns the offset of the page. It may overflow for a page far past the end, which Links rejects before it uses the offset.
func (f LinkFilter) skip() int64 { return int64(f.Page-1) * int64(f.Limit) }

// long reports whether the list may read very many links. An external id is that of one link at most.
func (f LinkFilter) long() bool {
	return f.ExternalID == "" && f.readsMany()
}

func (f LinkFilter) readsMany() bool {
	return f.IsActive != nil || f.Search+f.Tag+f.Channel+f.DomainID != "" || f.skip() > farAway
}

// fewFound is the maximum number of found ids to keep, so that reading the page does not repeat the search.
const fewFound = 10_000

// trigram is the minimum length of a word in the index.
const trigram = 3

const (
	// manyLinks is the number of links from which on Links looks for a rare word. Measured, a search for a title: 6 ms without and 10 ms
	// with a rare word at 20,000 links, 161 ms and 57 ms at 200,000, 408 ms and 10 ms at 10,000,000.
	manyLinks = 10_000
	// maxWords bounds the words to estimate: each takes one or two milliseconds.
	maxWords = 12
)

// rareWord returns a word of the search that few links contain, or "". The index looks up each trigram of a pattern among the links of all
// organizations, so a search for a whole title or path costs as much as its most common words. A lookup of the rarest word is fast, and
// its few results are then filtered by the whole search.
func rareWord(ctx context.Context, tx pgx.Tx, orgID, search string) (word string, err error) {
	words := strings.FieldsFunc(search, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool {
		// With ICU the lower case of a sigma depends on the next character, so it can differ between the word and the search.
		return utf8.RuneCountInString(word) < trigram || strings.ContainsAny(word, "Σσς")
	})
	if len(words) == 0 || words[0] == search {
		return "", nil
	}
	words = words[:min(len(words), maxWords)]
	err = tx.QueryRow(ctx, rareWordSQL, orgID, words, manyLinks).Scan(&word)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	return word, err
}

// count returns the query for the number of links, the number of matches and, if a search found few, their ids.
func (l *listing) count() (sql string, arguments []any) {
	switch {
	case l.searched:
		sql = fmt.Sprintf(`with matching as materialized (select l.id from links l where %s)
			select %s, m.n, case when m.n <= %d then array(select id from matching) end from (select count(*) as n from matching) m`,
			l.where, usageSQL, fewFound)
	case l.filtered:
		sql = `select ` + usageSQL + `, (select count(*) from links l where ` + l.where + `), null::uuid[]`
	default:
		sql = `select u.n, u.n, null::uuid[] from (select ` + usageSQL + ` as n) u`
	}
	return sql, l.withPlan(l.arguments)
}

// page returns the query for the page, given that total of all links match. It selects the ids, with an index-only scan where possible, and
// reads only the rows on the page.
func (l *listing) page(all, total int64) (sql string, arguments []any) {
	chosen, arguments := `select l.id from links l where `+l.where, l.arguments
	// With few matches, collect and sort them. With many, the first ones in index order are found soon. The planner would have to guess,
	// and reads a million links for three matches when it guesses wrong.
	switch inOrder := (l.skip + l.length) * all / max(total, 1); {
	case l.found != nil:
		chosen, arguments = `select l.id from links l where l.id = any ($1)`, []any{l.found}
	case l.filtered && total < inOrder:
		chosen = `with matching as materialized (select l.id, l.created_at from links l where ` + l.where + `) select l.id from matching l`
	}
	// Count the offset from the nearer end.
	order, skip, length := `desc`, l.skip, min(l.length, total-l.skip)
	if after := total - skip - length; after < skip {
		order, skip = `asc`, after
	}
	n := len(arguments)
	chosen += fmt.Sprintf(` order by l.created_at %[1]s, l.id %[1]s limit $%[2]d offset $%[3]d`, order, n+1, n+2)
	sql = `select ` + linkColumns + ` from ` + linkTables + ` where l.id = any (array(` + chosen + `)) order by l.created_at desc, l.id desc`
	return sql, l.withPlan(append(arguments, length, skip))
}
