-- +goose Up
-- purge_audit_log reads the entries of the first partition in random portions, for programs of the previous version. Control now walks
-- through them from the first page to the last, and knows when it has read all.
-- +goose StatementBegin
create function purge_audit_entries(since tid, until tid, out deleted bigint, out pages bigint)
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    name text;
begin
    deleted := 0;
    pages := 0;
    select c.relname into name
    from pg_inherits h join pg_class c on c.oid = h.inhrelid
    where h.inhparent = 'audit_log'::regclass and c.relname ~ '^audit_log_before_\d{6}$';
    if not found then
        return;
    end if;
    execute format('with gone as (delete from %I where ctid >= $1 and ctid < $2 and at < $3 returning 1) select count(*) from gone', name)
        into deleted using since, until, now() - interval '400 days';
    pages := pg_relation_size(name::regclass) / current_setting('block_size')::bigint;
end
$$;
-- +goose StatementEnd
comment on function purge_audit_entries(tid, tid) is 'Deletes the entries of the audit trail that are older than 400 days from the places of its first partition from the first (included) to the last. Returns how many, and how many pages that partition has; 0: there is none.';
revoke execute on function purge_audit_entries(tid, tid) from public;
grant execute on function purge_audit_entries(tid, tid) to deeplink_control;
