-- +goose NO TRANSACTION
-- +goose Up
-- Indexes for filtered lists of one organization's links. They are built while links are written, so this migration does not run in one
-- transaction: an interrupted build leaves an invalid index, which the next attempt drops.
create extension if not exists pg_trgm;
create extension if not exists btree_gin;

-- New entries of these indexes go to a pending list first: inserting each into about sixty places of the tree would cost more than the rest
-- of a create. tend_search_indexes, which control calls continuously, moves the list into the tree. Without these calls, the create that
-- fills the list (64 MB) must do it.
drop index concurrently if exists links_text;
create index concurrently links_text on links
    using gin (organization_id, title gin_trgm_ops, path gin_trgm_ops, short_code gin_trgm_ops) with (gin_pending_list_limit = 65536);
drop index concurrently if exists links_tags;
create index concurrently links_tags on links using gin (organization_id, tags) with (gin_pending_list_limit = 65536);

drop index concurrently if exists links_channel_newest;
create index concurrently links_channel_newest on links (organization_id, channel, created_at desc, id desc) where channel is not null;
drop index concurrently if exists links_domain_newest;
create index concurrently links_domain_newest on links (organization_id, domain_id, created_at desc, id desc);
drop index concurrently if exists links_domain;

-- An update that deactivates or activates a link then finds space on the same page (HOT), and changes no index.
alter table links set (fillfactor = 90);

-- +goose StatementBegin
create or replace function tend_search_indexes() returns boolean language plpgsql security definer set search_path = public, pg_temp as $$
begin
    -- One at a time is enough, and another would only wait.
    if not pg_try_advisory_xact_lock(hashtext('tend_search_indexes')) then
        return false;
    end if;
    perform gin_clean_pending_list('links_text'), gin_clean_pending_list('links_tags');
    return true;
end
$$;
-- +goose StatementEnd
comment on function tend_search_indexes() is 'Puts what is new in links into the trees of its search indexes. False when somebody else is at it.';
revoke all on function tend_search_indexes() from public;
grant execute on function tend_search_indexes() to deeplink_control;
