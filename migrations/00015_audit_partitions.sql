-- +goose NO TRANSACTION
-- +goose Up
-- The audit trail becomes a table with one partition per month (UTC), so that old entries are dropped with their partition. The existing
-- table becomes the partition for everything before a future month: no row is moved, and exclusive locks are held only for changes of the
-- catalog. Programs of earlier versions write, read and purge the trail as before, by the same names.
--
-- Each statement is a transaction. An interrupted run may have completed any of them; the next run starts again and skips what is already
-- done.

-- First the table gets the constraint that it needs as a partition. It is not yet checked for existing rows, so the lock is short. New rows
-- must satisfy it from now on; they will for at least a month.
-- +goose StatementBegin
do $$
declare
    boundary date := (date_trunc('month', now() at time zone 'UTC') + interval '2 months')::date;
    earlier  text;
begin
    if (select relkind from pg_class where oid = 'audit_log'::regclass) = 'p' then
        return;
    end if;
    for earlier in select conname from pg_constraint where conrelid = 'audit_log'::regclass and conname like 'audit\_log\_before\_%' loop
        execute format('alter table audit_log drop constraint %I', earlier);
    end loop;
    execute format('alter table audit_log add constraint %I check (at < %L) not valid',
                   'audit_log_before_' || to_char(boundary, 'YYYYMM'), to_char(boundary, 'YYYY-MM-DD "00:00:00+00"'));
end
$$;
-- +goose StatementEnd

-- Then the existing rows are checked, under a lock that allows reads and writes: for this constraint, and for one of an earlier migration
-- that was not checked yet, as a partition requires.
-- +goose StatementBegin
do $$
declare
    unchecked text;
begin
    for unchecked in
        select conname from pg_constraint where conrelid = 'audit_log'::regclass and contype = 'c' and not convalidated
    loop
        execute format('alter table audit_log validate constraint %I', unchecked);
    end loop;
end
$$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function make_audit_partitions(ahead integer) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '2s' as $$
declare
    this_month date := date_trunc('month', now() at time zone 'UTC')::date;
    month      date;
    name       text;
    made       integer := 0;
begin
    if ahead not between 0 and 24 then
        raise exception 'partitions are made for 0 to 24 months ahead, not %', ahead;
    end if;
    for i in 0 .. ahead loop
        month := (this_month + i * interval '1 month')::date;
        name := 'audit_log_' || to_char(month, 'YYYYMM');
        continue when to_regclass(name) is not null;
        perform pg_advisory_xact_lock(hashtext('audit_log'));
        -- Not to_regclass again: it remembers that there was none.
        continue when exists (select from pg_class where relname = name and relnamespace = 'public'::regnamespace);
        -- The name of the first partition says up to which month it has everything.
        continue when exists (select from pg_inherits h join pg_class c on c.oid = h.inhrelid
                              where h.inhparent = 'audit_log'::regclass and c.relname > 'audit_log_before_' || to_char(month, 'YYYYMM'));
        execute format('create table %I (like audit_log including defaults including constraints)', name);
        execute format('alter table audit_log attach partition %I for values from (%L) to (%L)', name,
                       to_char(month, 'YYYY-MM-DD "00:00:00+00"'), to_char(month + interval '1 month', 'YYYY-MM-DD "00:00:00+00"'));
        made := made + 1;
    end loop;
    return made;
end
$$;

-- A trail without rows starts with the partition of this month.
do $$
declare
    boundary  date;
    partition text;
begin
    if (select relkind from pg_class where oid = 'audit_log'::regclass) = 'p' then
        return;
    end if;
    lock table audit_log in access exclusive mode;
    select conname into strict partition from pg_constraint where conrelid = 'audit_log'::regclass and conname like 'audit\_log\_before\_%' and convalidated;
    boundary := to_date(right(partition, 6), 'YYYYMM');
    if not exists (select from audit_log) then
        execute format('alter table audit_log drop constraint %I', partition);
        boundary := date_trunc('month', now() at time zone 'UTC')::date;
        partition := 'audit_log_before_' || to_char(boundary, 'YYYYMM');
    end if;
    drop index audit_log_at;
    execute format('alter table audit_log rename constraint audit_log_pkey to %I', partition || '_pkey');
    execute format('alter table audit_log rename to %I', partition);
    execute format('revoke all on %I from deeplink_control', partition);
    execute format('comment on table %I is %L', partition, 'The entries of the audit trail from before it had a partition for each month.');

    create table audit_log (
        id                uuid not null,
        organization_id   uuid not null,
        at                timestamptz(3) not null default clock_timestamp(),
        actor_type        text not null constraint audit_log_actor_type_check check (actor_type in ('user', 'key', 'operator', 'service')),
        actor_id          text,
        actor_display_key text,
        ip                inet,
        request_id        text,
        action            text not null constraint audit_log_action_check check (action ~ '^[a-zA-Z]+\.[a-z]+$'),
        target_type       text not null,
        target_id         uuid not null,
        detail            jsonb not null,
        primary key (organization_id, at, id)
    ) partition by range (at);
    -- The constraint that was checked above makes a look at the rows unnecessary.
    execute format('alter table audit_log attach partition %I for values from (minvalue) to (%L)', partition, to_char(boundary, 'YYYY-MM-DD "00:00:00+00"'));
    execute format('alter table %I drop constraint if exists %1$I', partition);
    grant select on audit_log to deeplink_control;
    grant insert (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
        on audit_log to deeplink_control;
    perform make_audit_partitions(6);
end
$$;

-- Programs of the previous version call this function, too, once a minute. Each call is short. It finds the entries of the first partition
-- by page: in random portions of its pages, so that no call has to store where the last one ended, and none reads what others have deleted.
create or replace function purge_audit_log() returns bigint
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '200ms' as $$
declare
    -- What was written before this time is deleted.
    kept    constant timestamptz := now() - interval '400 days';
    portion constant bigint := 1000;
    name    text;
    pages   bigint;
    first   bigint;
    deleted bigint;
begin
    select c.relname into name
    from pg_inherits h join pg_class c on c.oid = h.inhrelid
    where h.inhparent = 'audit_log'::regclass
      and (c.relname ~ '^audit_log_before_\d{6}$' and right(c.relname, 6) <= to_char(kept at time zone 'UTC', 'YYYYMM')
           or c.relname ~ '^audit_log_\d{6}$' and right(c.relname, 6) < to_char(kept at time zone 'UTC', 'YYYYMM'))
    order by right(c.relname, 6) limit 1;
    if found then
        -- The lock that this takes makes writes to the trail wait: hence the lock_timeout, after which the next call tries again.
        execute format('drop table %I', name);
        return 1;
    end if;
    select c.relname into name
    from pg_inherits h join pg_class c on c.oid = h.inhrelid
    where h.inhparent = 'audit_log'::regclass and c.relname like 'audit\_log\_before\_%';
    if not found then
        return 0;
    end if;
    pages := pg_relation_size(name::regclass) / current_setting('block_size')::bigint;
    first := floor(random() * ceil(pages::numeric / portion)) * portion;
    execute format('with gone as (delete from %I where ctid >= $1 and ctid < $2 and at < $3 returning 1) select count(*) from gone', name)
        into deleted using format('(%s,0)', first)::tid, format('(%s,0)', first + portion)::tid, kept;
    return deleted;
end
$$;
-- +goose StatementEnd

comment on table audit_log is 'Who changed what, one row per change, written in the transaction of the change. One partition per month (UTC), named audit_log_YYYYMM, and one for all that was before. Control creates them ahead, and drops each when its last entry is 400 days old. No foreign keys: the trail outlives what it is about, and its inserts wait for nothing.';
comment on column audit_log.actor_id is 'Subject of a session token, id of an API key, name of an operator or of a background job; null when the token named nobody.';
comment on column audit_log.actor_display_key is 'The key in the form that people know: prefix, ellipsis and last four characters.';
comment on column audit_log.ip is 'Whole address from which the request came, kept as long as the row; null for operators.';
comment on column audit_log.request_id is 'X-Request-Id of the response, as in the log of control.';
comment on column audit_log.detail is 'What the action alone does not say. Never a credential, nor the content of a link, nor what identifies a user of an app.';
comment on function make_audit_partitions(integer) is 'Creates the missing partitions of the audit trail for this month and so many months ahead (UTC), and returns how many it created.';
comment on function purge_audit_log() is 'Drops one partition of the audit trail whose last entry is older than 400 days, or deletes such entries from a portion of the first partition. Returns how many rows or partitions went. Fails with 55P03 when the partition is being read.';
revoke execute on function make_audit_partitions(integer) from public;
grant execute on function make_audit_partitions(integer) to deeplink_control;
