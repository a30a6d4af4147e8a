package store

// This file has the statements of control on the table links. links.go composes those of a filtered list, and ImportLinks copies rows with
// copiedColumns. Every statement names the organization, except the sample of rareWordSQL. The edges' statements are in
// package origin.

// linkColumns are the columns of a link, in the order of scanLink.
const linkColumns = `
	l.id, l.organization_id, l.domain_id, l.short_code, l.path, l.channel, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term,
	l.utm_content, l.fallback_url, l.og_title, l.og_description, l.og_image_url, l.title, l.tags, l.expiry, l.template_id, l.params,
	l.is_active, l.external_id, l.version, l.created_at, l.updated_at, l.changed_xid, o.org_key, d.host, d.status, d.created_at`

const linkTables = `
	links l join organizations o on o.id = l.organization_id join domains d on d.id = l.domain_id`

const linkSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and l.id = $2`

const linkByExternalIDSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and l.external_id = $2`

const (
	lockLinkSQL             = linkSQL + ` for no key update of l`
	lockLinkByExternalIDSQL = linkByExternalIDSQL + ` for no key update of l`
)

const linkAtSQL = `select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = $2 and `

const (
	linkOnSharedHostSQL   = linkAtSQL + `d.host is null and o.org_key = $3`
	linkOnCustomDomainSQL = linkAtSQL + `d.host = $3 and d.status = 'verified'`
)

// doomedLinkColumns are what a delete must know of a link.
const doomedLinkColumns = `l.id, l.short_code, l.version, l.domain_id, d.host, d.status`

const (
	lockDoomedLinkSQL = `select ` + doomedLinkColumns + ` from links l join domains d on d.id = l.domain_id
		where l.organization_id = $1 and l.id = $2 for update of l`
	lockDoomedLinkByExternalIDSQL = `select ` + doomedLinkColumns + ` from links l join domains d on d.id = l.domain_id
		where l.organization_id = $1 and l.external_id = $2 for update of l`
)

// linkChangeSQL returns the last transaction that changed what edges serve of a link, and its change.
const linkChangeSQL = `select (select changed_xid from links where organization_id = $1 and id = $2),` + changeRows + `
	where c.xid = (select changed_xid from links where organization_id = $1 and id = $2)`

// insertLinkSQL and updateLinkSQL take the values of linkArguments from domain_id on.
const insertLinkSQL = `
	insert into links (id, organization_id, domain_id, short_code, path, channel, utm_source, utm_medium, utm_campaign, utm_term,
	                   utm_content, fallback_url, og_title, og_description, og_image_url, title, tags, expiry, template_id, params,
	                   is_active, external_id)
	values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)`

// nowSQL is the time of the transaction, as created_at and updated_at of a new link have it.
const nowSQL = `select now()::timestamptz(3)`

const updateLinkSQL = `
	update links
	set domain_id = $3, short_code = $4, path = $5, channel = $6, utm_source = $7, utm_medium = $8, utm_campaign = $9, utm_term = $10,
	    utm_content = $11, fallback_url = $12, og_title = $13, og_description = $14, og_image_url = $15, title = $16, tags = $17,
	    expiry = $18, template_id = $19, params = $20, is_active = $21, external_id = $22
	where organization_id = $1 and id = $2`

// returningSQL is added to updateLinkSQL to read what triggers set.
const returningSQL = ` returning version, updated_at, changed_xid`

// deleteLinksSQL is deleteLinkSQL for several links.
const deleteLinksSQL = `delete from links where organization_id = $1 and id = any ($2::uuid[])`

const deleteLinkSQL = `delete from links where organization_id = $1 and id = $2`

const deleteOldLinksSQL = `
	delete from links where organization_id = $1 and created_at < now() - $2::interval returning id, organization_id, short_code`

const targetDomainSQL = `
	select d.id, d.host, d.status, d.created_at from domains d
	where d.organization_id = $1 and case when $2::uuid is null then d.host is null else d.id = $2 end`

// targetDomainsSQL has the columns of targetDomainSQL.
const targetDomainsSQL = `select d.id, d.host, d.status, d.created_at from domains d where d.organization_id = $1`

// lockNamedLinksSQL locks and reads the links with the ids and those with the external ids.
const lockNamedLinksSQL = `
	select ` + linkColumns + ` from ` + linkTables + `
	where l.organization_id = $1 and l.id = any (array(
		select i.id from links i where i.organization_id = $1 and i.id = any ($2::uuid[])
		union
		select e.id from links e where e.organization_id = $1 and e.external_id = any ($3::text[])))
	order by l.id for no key update of l`

// codeOwnersSQL returns which links have the codes, in lower case.
const codeOwnersSQL = `select lower(l.short_code), l.id from links l where l.organization_id = $1 and lower(l.short_code) = any ($2::text[])`

// deletedLinksSQL returns the deletions of the links with the ids and of those with the external ids.
const deletedLinksSQL = `
	select xid from deleted_links where organization_id = $1 and id = any ($2::uuid[])
	union
	select xid from deleted_links where organization_id = $1 and external_id = any ($3::text[])`

const appConfigRegisteredSQL = `
	select exists (select from app_configs a where a.organization_id = $1
	               and (num_nonnulls(a.ios_bundle_id, a.ios_team_id, a.ios_app_store_id, a.ios_scheme, a.android_package_name,
	                                 a.android_sha256_cert_fingerprints, a.android_scheme, a.fallback_url) > 0))`

// codeTakenSQL checks whether a link other than $3 has the code. It runs under the lock that all writers of links take, so only a change by
// hand can still violate the unique index.
const codeTakenSQL = `
	select exists (select from links l where l.organization_id = $1 and lower(l.short_code) = lower($2) and l.id <> $3)`

// externalIDTakenSQL checks whether a link other than $3 has the external id, as codeTakenSQL does for codes.
const externalIDTakenSQL = `
	select exists (select from links l where l.organization_id = $1 and l.external_id = $2 and l.id <> $3)`

// codeTakenByOtherSQL checks whether a link without the external id $3 has the code.
const codeTakenByOtherSQL = `
	select exists (select from links l where l.organization_id = $1 and lower(l.short_code) = lower($2) and l.external_id is distinct from $3)`

const externalIDsTakenSQL = `select l.external_id from links l where l.organization_id = $1 and l.external_id = any ($2::text[])`

const withCodesSQL = `
	select ` + linkColumns + ` from ` + linkTables + ` where l.organization_id = $1 and lower(l.short_code) = any ($2)`

const deletedSQL = `select xid from deleted_links where organization_id = $1 and id = $2`

// deletedByExternalIDSQL returns the last deletion of a link with the external id.
const deletedByExternalIDSQL = `select max(xid) from deleted_links where organization_id = $1 and external_id = $2`

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
