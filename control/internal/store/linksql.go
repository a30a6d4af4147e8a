package store

// This file has the statements of control on the table links. links.go composes those of a filtered list, and ImportLinks copies rows with
// copiedColumns. Every statement names the organization, except the sample of rareWordSQL. The edges' statements are in
// package origin.

// linkColumns are the columns of a link, in the order of scanLink.
const linkColumns = `
	l.id, l.organization_id, l.domain_id, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term,
	l.utm_content, l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.title, l.tags, l.expiry, l.template_id, l.params,
	l.is_active, l.created_at, l.updated_at, l.changed_xid, o.org_key, d.host, d.status, d.created_at`

const linkTables = `
	links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id`

const linkSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and l.id = $2`

const lockLinkSQL = linkSQL + ` for no key update of l`

const linkAtSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = $2 and `

const (
	linkOnSharedHostSQL   = linkAtSQL + `d.host is null and o.org_key = $3`
	linkOnCustomDomainSQL = linkAtSQL + `d.host = $3 and d.status = 'verified'`
)

const lockLinkCodeSQL = `select short_code from links where organization_id = $1 and id = $2 for update`

// linkChangeSQL returns the last transaction that changed what edges serve of a link, and its change.
const linkChangeSQL = `select (select changed_xid from links where organization_id = $1 and id = $2),` + changeRows + `
	where c.xid = (select changed_xid from links where organization_id = $1 and id = $2)`

// insertLinkSQL and updateLinkSQL take the values of linkArguments from domain_id on.
const insertLinkSQL = `
	insert into links (id, organization_id, domain_id, short_code, path, channel, utm_source, utm_medium, utm_campaign, utm_term,
	                   utm_content, fallback_url, og_title, og_description, og_image_url, title, tags, expiry, template_id, params,
	                   is_active)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
	returning created_at, updated_at`

const updateLinkSQL = `
	update links
	set domain_id = $3, short_code = $4, path = $5, channel = $6, utm_source = $7, utm_medium = $8, utm_campaign = $9, utm_term = $10,
	    utm_content = $11, fallback_url = $12, og_title = $13, og_description = $14, og_image_url = $15, title = $16, tags = $17,
	    expiry = $18, template_id = $19, params = $20, is_active = $21
	where organization_id = $1 and id = $2`

const deleteLinkSQL = `delete from links where organization_id = $1 and id = $2`

const deleteOldLinksSQL = `
	delete from links where organization_id = $1 and created_at < now() - $2::interval returning id, organization_id, short_code`

const targetDomainSQL = `
	select d.id, d.host from domains d
	where d.organization_id = $1 and case when $2::uuid is null then d.host is null else d.id = $2 end`

const appConfigRegisteredSQL = `
	select exists (select from app_configs a where a.organization_id = $1
	               and (num_nonnulls(a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme, a.android_package_name,
	                                 a.android_sha256_cert_fingerprints, a.android_scheme, a.fallback_url) > 0))`

// codeTakenSQL checks whether a link other than $3 has the code. It runs under the lock that all writers of links take, so only a change by
// hand can still violate the unique index.
const codeTakenSQL = `
	select exists (select from links l where l.organization_id = $1 and lower(l.short_code) = lower($2) and l.id <> $3)`

const withCodesSQL = `
	select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = any ($2)`

const deletedSQL = `select xid from deleted_links where organization_id = $1 and id = $2`

// usageSQL is the number of links of an organization. Triggers update link_usage in the transactions that change links, so it agrees with
// the snapshot and does not read a million rows.
const usageSQL = `coalesce((select u.links from link_usage u where u.organization_id = $1), 0)`

const exportedSQL = `
	select ` + linkColumns + ` from ` + linkTables + `
	where l.id = any (array(
		select l.id from links l where l.organization_id = $1 and (l.created_at, l.id) > ($2, $3::uuid) order by l.created_at, l.id limit $4))
	order by l.created_at, l.id`

// rareWordSQL returns, for an organization with very many links, the word that the fewest links contain, if it is rare both among all links
// (the index reads the trigrams of all organizations) and among the organization's own (which are then filtered). It estimates this from
// samples of a few hundred links. A word with characters that the database does not count as letters has no trigrams.
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
