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
	// Search is looked for in title, path and short code, without regard to case.
	Search string
	// Tag, Channel and DomainID (a UUID) must be equal.
	Tag, Channel, DomainID string
}

// Links returns a page of the links that match, the newest first, and how many match in all. Both are of one moment. A page
// past the end is empty. Lists for which very many links may have to be looked at keep some connections free for everybody else.
func (s *Store) Links(ctx context.Context, orgID string, f LinkFilter) (links []catalog.LinkWithDomain, total int64, err error) {
	if f.long() {
		select {
		case s.longLists <- struct{}{}:
			defer func() { <-s.longLists }()
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("list links: %w: %w", ErrUnavailable, ctx.Err())
		}
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
		// Compared before it is multiplied: no page is so far that its offset overflows.
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
	searched     bool       // by the index of trigrams
	skip, length int64      // links before the page, and on it
	found        [][16]byte // the ids of all that match, if they are few and were searched for
}

// newListing lists what the filter matches. rare is what [rareWord] says of its search.
func newListing(orgID string, f LinkFilter, rare string) listing {
	l := listing{where: `l.organization_id = $1`, arguments: []any{orgID}, length: int64(f.Limit), skip: f.skip()}
	if f.IsActive != nil {
		l.match(`l.is_active = $n`, *f.IsActive)
	}
	if f.Search != "" {
		// Less has no trigram, and is looked for in all links there are: among those it is no use to remember what was found.
		l.searched = utf8.RuneCountInString(f.Search) >= trigram
		if pattern := "%" + wildcards.Replace(f.Search) + "%"; rare == "" {
			l.match(`(l.title ilike $n or l.path ilike $n or l.short_code ilike $n)`, pattern)
		} else {
			l.match(`(l.title ilike $n or l.path ilike $n or l.short_code ilike $n)`, "%"+rare+"%")
			// Of an expression there is no index: this is looked at in what was found.
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
	return l
}

// wildcards escapes what ILIKE gives a meaning.
var wildcards = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// match adds a condition, in which $n is value.
func (l *listing) match(condition string, value any) {
	l.arguments = append(l.arguments, value)
	l.where += ` and ` + strings.ReplaceAll(condition, "$n", "$"+strconv.Itoa(len(l.arguments)))
	l.filtered = true
}

// planned adds how Postgres is to plan. What a filter matches differs so much that no plan is good for all its values, so each time
// is planned anew.
func (l *listing) planned(arguments []any) []any {
	if !l.filtered {
		return arguments
	}
	return append([]any{pgx.QueryExecModeCacheDescribe}, arguments...)
}

// farAway is how many links a page may be away from the newest before it counts as far: as many entries of the index are read to get
// there.
const farAway = 10_000

// skip is how many links come before the page. One so far that this is not exact is past the end.
func (f LinkFilter) skip() int64 { return int64(f.Page-1) * int64(f.Limit) }

// long: perhaps very many links have to be looked at.
func (f LinkFilter) long() bool {
	return f.IsActive != nil || f.Search+f.Tag+f.Channel+f.DomainID != "" || f.skip() > farAway
}

// usageSQL is how many links an organization has. link_usage changes in the transactions of the links, so it counts what
// the same snapshot sees, without reading a million rows.
const usageSQL = `coalesce((select u.links from link_usage u where u.organization_id = $1), 0)`

// fewFound is of how many links that a search found the ids are kept, so that the page need not search again.
const fewFound = 10_000

// trigram is how many characters a word needs to be in the index.
const trigram = 3

// rareWordSQL asks, for organizations of very many links, which of some words the fewest links have, if it is few: few of all links, whose
// trigrams the index goes through, and few of the organization's own, which are then looked at. It knows by some hundred of each. Words
// with what the database takes for no letter have no trigram.
const rareWordSQL = `
	with sample as materialized (
	    (select false as own, title, path, short_code
	     from links tablesample system (least(100, 100 * 200e3 / greatest(pg_relation_size('links'::regclass), 1)))
	     limit 1000)
	    union all
	    (select true, title, path, short_code from links where organization_id = $1 order by created_at desc, id desc limit 300)
	)
	select w.word
	from unnest($2::text[]) w (word), lateral (
	    select count(*) filter (where not own) as n, count(*) filter (where own) as n_own from sample
	    where title ilike '%' || w.word || '%' or path ilike '%' || w.word || '%' or short_code ilike '%' || w.word || '%'
	) has
	where ` + usageSQL + ` > $3 and w.word ~ '^[[:alnum:]]+$'
	  and (select count(*) from sample where not own) >= 100
	  and has.n * 50 <= (select count(*) from sample where not own) and has.n_own * 50 <= (select count(*) from sample where own)
	order by has.n + has.n_own, w.word ~ '[0-9]' desc, length(w.word) desc
	limit 1`

const (
	// manyLinks is of how many links an organization has to be that a rare word is asked for.
	manyLinks = 10_000
	// maxWords bounds what is asked for: each word takes one or two milliseconds.
	maxWords = 12
)

// rareWord returns a word of what is searched for that few links have, or nothing. The index looks up each trigram of what it is asked
// for, and those of all organizations' links: a whole title or path costs it as much as its commonest words, of which each link has
// some. Who has the rarest of them is found at once.
func rareWord(ctx context.Context, tx pgx.Tx, orgID, search string) (word string, err error) {
	words := strings.FieldsFunc(search, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) })
	words = slices.DeleteFunc(words, func(word string) bool {
		// Where its lower case depends on what follows (ICU), a sigma of the word need not be that of the search.
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

// count asks how many links there are, how many of them match, and which these are if a search found few.
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
	return sql, l.planned(l.arguments)
}

// page asks for the page when total of all links match. Which links are on it is decided by an index alone where there is one, and
// only those are read.
func (l *listing) page(all, total int64) (sql string, arguments []any) {
	chosen, arguments := `select l.id from links l where `+l.where, l.arguments
	// Few matches are all gathered and then sorted; of many, those that come first in the index are found soon. Postgres would
	// have to guess which it is, and reads a million links for three when it guesses wrong.
	switch inOrder := (l.skip + l.length) * all / max(total, 1); {
	case l.found != nil:
		chosen, arguments = `select l.id from links l where l.id = any ($1)`, []any{l.found}
	case l.filtered && total < inOrder:
		chosen = `with matching as materialized (select l.id, l.created_at from links l where ` + l.where + `) select l.id from matching l`
	}
	// The page is counted off from the nearer end.
	order, skip, length := `desc`, l.skip, min(l.length, total-l.skip)
	if after := total - skip - length; after < skip {
		order, skip = `asc`, after
	}
	n := len(arguments)
	chosen += fmt.Sprintf(` order by l.created_at %[1]s, l.id %[1]s limit $%[2]d offset $%[3]d`, order, n+1, n+2)
	sql = `select ` + linkColumns + ` from ` + linkTables + ` where l.id = any (array(` + chosen + `)) order by l.created_at desc, l.id desc`
	return sql, l.planned(append(arguments, length, skip))
}
