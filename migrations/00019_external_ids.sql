-- +goose NO TRANSACTION
-- +goose Up
-- The id that a client gives to a link, so that it can write and read the link without storing ours. The index is built while links are
-- written; a build that broke off leaves an invalid index, which the next try drops. Programs of the version before neither read nor set it.
alter table links add column if not exists external_id text collate "C";
alter table links drop constraint if exists links_external_id_length;
alter table links add constraint links_external_id_length check (length(external_id) between 1 and 255) not valid;
alter table links validate constraint links_external_id_length;
drop index concurrently if exists links_external_id;
create unique index concurrently links_external_id on links (organization_id, external_id) where external_id is not null;
comment on column links.external_id is 'The client''s own id of the link, compared byte for byte. Unique among the links that the organization has.';

-- A client that gets 404 for an external id waits for the same edges as the deletion did.
alter table deleted_links add column if not exists external_id text collate "C";
drop index concurrently if exists deleted_links_external_id;
create index concurrently deleted_links_external_id on deleted_links (organization_id, external_id) where external_id is not null;

-- +goose StatementBegin
create or replace function links_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from new_rows l join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    elsif tg_op = 'UPDATE' then
        -- links_before_update marked the rows of which an edge serves something new. Both names of a renamed key are written.
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from (select n.organization_id, n.domain_id, n.short_code from new_rows n where n.changed_xid = pg_current_xact_id()
              union all
              select b.organization_id, b.domain_id, b.short_code from old_rows b
              where not exists (select 1 from new_rows n where n.id = b.id and n.changed_xid <> pg_current_xact_id())) l
        join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    elsif tg_op = 'DELETE' then
        insert into deleted_links (id, organization_id, external_id) select id, organization_id, external_id from old_rows
        on conflict (id) do update set organization_id = excluded.organization_id, external_id = excluded.external_id, xid = excluded.xid;
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from old_rows l join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    end if;
    return null;
end
$$;
-- +goose StatementEnd
