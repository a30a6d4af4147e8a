-- +goose Up
-- What edges write of clicks: logs, batches, clicks, counts, and the dictionary of agents. The protocol is in
-- control/internal/clicks/README.md.
create type click_outcome as enum ('redirect', 'handoff', 'landing', 'preview', 'inactive', 'expired', 'suspended', 'unknown');
create type click_class as enum ('internal', 'head', 'prefetch', 'agent', 'preview', 'bot', 'scanner', 'human');
create type click_reason as enum ('canary', 'head', 'prefetch', 'assistant', 'preview-bot', 'scanner-name', 'crawler', 'automation',
    'no-agent', 'not-a-browser', 'list', 'no-browser-headers', 'hints-contradict', 'browser');
create type click_log_state as enum ('open', 'closed', 'forgotten', 'lost', 'off');
comment on type click_outcome is 'Response of the edge to a short URL.';
comment on type click_class is 'Kind of client that sent a request.';
comment on type click_reason is 'Name of the rule that gave a click its class.';
comment on type click_log_state is 'open: a process writes the log, or has left clicks in it. closed: complete. forgotten: an operator gave it up. lost: some of its clicks are gone. off: the edge records no clicks.';

create table click_logs (
    log          uuid primary key,
    slot         text not null check (length(slot) between 1 and 255),
    state        click_log_state not null default 'open',
    durable      boolean not null,
    through      timestamptz not null default clock_timestamp(),
    published_at timestamptz not null default clock_timestamp(),
    ended_at     timestamptz,
    created_at   timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
create index click_logs_open on click_logs (log) where state = 'open';
create index click_logs_slot on click_logs (slot);
comment on table click_logs is 'Logs of clicks. Each process of an edge writes one.';
comment on column click_logs.log is 'Incarnation of the process that writes the log.';
comment on column click_logs.slot is 'Slot of the edge, as in edges.';
comment on column click_logs.durable is 'Whether the log is in a directory. Otherwise it is in memory, and is lost with its process.';
comment on column click_logs.through is 'Every click of the log before this time is committed. It never decreases. In state lost: the start of the interval in which clicks are missing.';
comment on column click_logs.published_at is 'When the process last set through.';
comment on column click_logs.ended_at is 'When the log reached its last state; in state lost: the end of the interval in which clicks are missing. Null: the log is open or off.';
comment on column click_logs.created_at is 'When the log was registered.';

create table click_batches (
    slot       text not null,
    log        uuid not null,
    sequence   integer not null check (sequence > 0),
    first_at   timestamptz(3) not null,
    through    timestamptz,
    clicks     bigint not null check (clicks >= 0),
    late       boolean not null default false,
    shipped_at timestamptz not null default clock_timestamp(),
    rolled_at  timestamptz,
    primary key (slot, log, sequence)
) with (fillfactor = 90);
create index click_batches_unrolled on click_batches (shipped_at) where rolled_at is null;
create index click_batches_first on click_batches (first_at) where rolled_at is null and not late;
create index click_batches_log on click_batches (log, sequence);
comment on table click_batches is 'Batches of clicks. A row is written in the transaction of its clicks, and kept until its log is closed, so that a batch which is sent again is not counted again.';
comment on column click_batches.slot is 'Slot of the log.';
comment on column click_batches.sequence is 'The batches of a log are numbered 1, 2, 3, …';
comment on column click_batches.first_at is 'Time of the first click of the batch.';
comment on column click_batches.through is 'Time to which the batch advances through of its log. Null: a later batch does.';
comment on column click_batches.clicks is 'Number of clicks in the batch: its rows of clicks, and the sum over its rows of click_counts.';
comment on column click_batches.late is 'Whether the batch arrived after figures of its time were final. Only the trigger sets it.';
comment on column click_batches.shipped_at is 'When the batch was inserted.';
comment on column click_batches.rolled_at is 'When a roll-up counted the batch. Null: not yet.';

-- The columns are in an order that needs no padding.
create table clicks (
    log        uuid not null,
    at         timestamptz(3) not null,
    visitor    bigint,
    sequence   integer not null,
    ordinal    integer not null,
    agent_id   integer,
    outcome    click_outcome not null check (outcome <> 'unknown'),
    class      click_class not null,
    reason     click_reason not null,
    ruleset    smallint not null,
    evidence   smallint not null,
    link_id    uuid,
    org_key    text collate "C" not null check (octet_length(org_key) = 4),
    country    text collate "C" check (octet_length(country) = 2),
    language   text collate "C" check (octet_length(language) between 2 and 3),
    referrer   text collate "C" check (octet_length(referrer) between 1 and 253),
    primary key (org_key, at, log, sequence, ordinal)
) partition by range (at);
create index clicks_batch on clicks (log, sequence);
comment on table clicks is 'Clicks that are stored one by one, one partition per day (UTC) of the click, named clicks_YYYYMMDD. clicks_other holds the clicks of all other days.';
comment on column clicks.log is 'Log of the click; log, sequence and ordinal identify it.';
comment on column clicks.at is 'When the edge read the request.';
comment on column clicks.visitor is 'SipHash-2-4 of organization, network address and agent, keyed with the salt of the day. Null: the edge had no salt.';
comment on column clicks.sequence is 'Batch of the click.';
comment on column clicks.ordinal is 'Number of the click in its batch.';
comment on column clicks.agent_id is 'User-Agent, in click_agents. Null: the request had none. 0: the dictionary has no room for it.';
comment on column clicks.outcome is 'Response of the edge.';
comment on column clicks.class is 'Kind of client, first as the edge decided, then as the roll-up did.';
comment on column clicks.reason is 'Name of the rule that decided class.';
comment on column clicks.ruleset is 'Version of the rules that decided class.';
comment on column clicks.evidence is 'What the rules need to know of the request, in addition to its agent: the bits of Evidence in shared/click.';
comment on column clicks.link_id is 'The link. It may have been deleted since.';
comment on column clicks.org_key is 'Key of the organization of the link.';
comment on column clicks.country is 'ISO 3166-1 alpha-2. Null: unknown.';
comment on column clicks.language is 'Primary subtag of the first range of Accept-Language. Null: unknown.';
comment on column clicks.referrer is 'Host of the page that had the link. Null: unknown.';

create table click_counts (
    log      uuid not null,
    sequence integer not null,
    org_key  text collate "C" not null check (octet_length(org_key) = 4),
    link_id  uuid,
    outcome  click_outcome not null,
    class    click_class not null,
    quarter  timestamptz not null check (extract(epoch from quarter) % 900 = 0),
    clicks   bigint not null check (clicks > 0)
);
create index click_counts_batch on click_counts (log, sequence);
comment on table click_counts is 'Clicks that are only counted: unknown short URLs, and clicks for whose details an edge had no space. The roll-up deletes the rows.';
comment on column click_counts.log is 'Log of the clicks.';
comment on column click_counts.sequence is 'Batch of the clicks.';
comment on column click_counts.org_key is 'Key of the organization.';
comment on column click_counts.link_id is 'The link. Null: an unknown short URL, or the edge had no space for a counter of the link.';
comment on column click_counts.outcome is 'Response of the edge.';
comment on column click_counts.class is 'Kind of client, as the edge decided.';
comment on column click_counts.quarter is 'Start of the quarter of an hour of the clicks.';
comment on column click_counts.clicks is 'Number of clicks.';

create table click_agents (
    id       integer generated by default as identity primary key,
    agent    text collate "C" not null unique check (octet_length(agent) <= 512),
    facts    integer,
    listed   boolean,
    ruleset  smallint,
    seen_on  date not null default (now() at time zone 'UTC')::date
);
insert into click_agents (id, agent) values (0, '(other)');
comment on table click_agents is 'Dictionary of User-Agents, shared by all organizations. It takes at most 100,000 new entries a day; clicks with further agents have the entry 0.';
comment on column click_agents.id is 'Number of the entry. 0: all agents that have no entry.';
comment on column click_agents.agent is 'User-Agent, at most its first 512 bytes.';
comment on column click_agents.facts is 'What the rules know of the agent: the bits of Facts in shared/click. Null: control has not read the agent yet.';
comment on column click_agents.listed is 'Whether the agent is in the public list of crawlers. Null: control has not read the agent yet.';
comment on column click_agents.ruleset is 'Version of the rules with which control read the agent.';
comment on column click_agents.seen_on is 'Day (UTC) of the last click of the agent that was rolled up.';

create table click_agent_days (
    day     date primary key,
    entries integer not null check (entries between 1 and 100000)
);
comment on table click_agent_days is 'Number of new entries of click_agents, by day (UTC).';
comment on column click_agent_days.day is 'The day.';
comment on column click_agent_days.entries is 'Number of entries that were added.';

create table click_salts (
    day  date primary key,
    salt bytea not null check (octet_length(salt) = 16)
);
comment on table click_salts is 'Keys of the hashes in clicks.visitor, one per day (UTC). Control deletes a salt 48 hours after its day.';
comment on column click_salts.day is 'The day of the clicks.';
comment on column click_salts.salt is 'The key. Without it, a hash cannot be computed from an address.';

create table click_as_of (
    singleton boolean primary key default true check (singleton),
    as_of     timestamptz not null
);
insert into click_as_of (as_of) values (clock_timestamp());
comment on table click_as_of is 'The time before which all figures of clicks are final. One row.';
comment on column click_as_of.as_of is 'Every click before this time is counted. It never decreases.';

-- +goose StatementBegin
create function click_batch_arrives() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
declare
    known click_logs;
begin
    -- The lock lasts until the batch is committed: a log cannot be forgotten between this check and the commit.
    select * into known from click_logs where log = new.log for no key update;
    if not found or known.slot <> new.slot then
        raise exception 'no log % of slot %', new.log, new.slot using errcode = 'foreign_key_violation';
    elsif known.state in ('closed', 'off') then
        raise exception 'log % is %', new.log, known.state using errcode = 'object_not_in_prerequisite_state';
    end if;
    new.late := known.state in ('forgotten', 'lost') or new.first_at < known.through;
    new.shipped_at := clock_timestamp();
    new.rolled_at := null;
    return new;
end
$$;

create function click_log_changes() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        if new.state in ('open', 'off') then
            new.through := least(new.through, clock_timestamp());
        end if;
    else
        if new.log <> old.log or new.slot <> old.slot then
            raise exception 'a log keeps its id and its slot' using errcode = 'object_not_in_prerequisite_state';
        elsif new.state <> old.state and (old.state = 'closed' or new.state in ('open', 'off')) then
            raise exception 'log % is %, and cannot become %', old.log, old.state, new.state using errcode = 'object_not_in_prerequisite_state';
        end if;
        new.through := greatest(old.through, least(new.through, clock_timestamp()));
    end if;
    if new.state in ('closed', 'forgotten', 'lost') then
        new.ended_at := coalesce(new.ended_at, clock_timestamp());
    end if;
    return new;
end
$$;

create function click_agent_arrives() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if exists (select from click_agents where agent = new.agent) then
        return null;
    end if;
    -- The lock on the row of the day makes the number exact.
    insert into click_agent_days as d (day, entries) values ((clock_timestamp() at time zone 'UTC')::date, 1)
    on conflict (day) do update set entries = d.entries + 1 where d.entries < 100000;
    if not found then
        return null;
    end if;
    delete from click_agent_days where day < (clock_timestamp() at time zone 'UTC')::date - 7;
    return new;
end
$$;

create function click_salt(of_day date) returns bytea language plpgsql security definer set search_path = public, pg_temp as $$
declare
    today date := (clock_timestamp() at time zone 'UTC')::date;
    found_salt bytea;
begin
    if of_day is null or of_day not between today - 1 and today + 1 then
        raise exception 'there are salts for yesterday, today and tomorrow (UTC), not for %', of_day using errcode = 'invalid_parameter_value';
    end if;
    select salt into found_salt from click_salts where day = of_day;
    if not found then
        insert into click_salts (day, salt)
        values (of_day, substring(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) for 16))
        on conflict (day) do nothing;
        select salt into found_salt from click_salts where day = of_day;
    end if;
    return found_salt;
end
$$;

-- An edge calls click_floor after it has committed the registration of its log. The lock makes it wait for a change of as_of that may
-- not have seen the log yet.
create function click_floor() returns timestamptz language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform from click_as_of for share;
    return (select greatest(clock_timestamp(), (select as_of from click_as_of), (select max(through) from click_logs where state <> 'lost')));
end
$$;

-- Control calls advance_click_as_of in a transaction of its own. The lock comes before the snapshot of the update, for click_floor.
create function advance_click_as_of() returns timestamptz language plpgsql security definer set search_path = public, pg_temp as $$
declare
    advanced timestamptz;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'advance_click_as_of needs a snapshot for each statement: read committed';
    end if;
    perform from click_as_of for update;
    update click_as_of set as_of = greatest(as_of, coalesce(
        least((select min(through) from click_logs where state = 'open'),
              (select min(first_at) from click_batches where rolled_at is null and not late)),
        clock_timestamp()))
    returning as_of into advanced;
    return advanced;
end
$$;

create function make_click_partitions(ahead integer) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '2s' as $$
declare
    today date := (now() at time zone 'UTC')::date;
    day   date;
    name  text;
    made  integer := 0;
begin
    if ahead not between 0 and 60 then
        raise exception 'partitions are made for 0 to 60 days ahead, not %', ahead;
    end if;
    for i in 0 .. ahead loop
        day := today + i;
        name := 'clicks_' || to_char(day, 'YYYYMMDD');
        continue when to_regclass(name) is not null;
        perform pg_advisory_xact_lock(hashtext('clicks'));
        -- Not to_regclass again: it remembers that there was none.
        continue when exists (select from pg_class where relname = name and relnamespace = 'public'::regnamespace);
        execute format('create table %I (like clicks including defaults including constraints)', name);
        -- Clicks that arrived while there was no partition for their day move into it: a partition must have all rows of its range.
        lock table clicks_other in access exclusive mode;
        execute format('with moved as (delete from clicks_other where at >= %L and at < %L returning *) insert into %I select * from moved',
                       to_char(day, 'YYYY-MM-DD "00:00:00+00"'), to_char(day + 1, 'YYYY-MM-DD "00:00:00+00"'), name);
        execute format('alter table clicks attach partition %I for values from (%L) to (%L)', name,
                       to_char(day, 'YYYY-MM-DD "00:00:00+00"'), to_char(day + 1, 'YYYY-MM-DD "00:00:00+00"'));
        execute format('comment on table %I is %L', name, 'Clicks of ' || to_char(day, 'YYYY-MM-DD') || ' (UTC).');
        made := made + 1;
    end loop;
    return made;
end
$$;

-- The lock that dropping takes keeps inserts waiting, so it is given up soon and tried again later. A partition with clicks that no
-- roll-up has counted stays.
create function drop_click_partitions(retention interval) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '200ms' as $$
declare
    kept    date := ((now() - retention) at time zone 'UTC')::date;
    name    text;
    waits   boolean;
    dropped integer := 0;
begin
    if retention is null or retention < interval '0' then
        raise exception 'a retention is not negative, as % is', retention;
    end if;
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'clicks'::regclass and c.relname ~ '^clicks_\d{8}$' and c.relname < 'clicks_' || to_char(kept, 'YYYYMMDD') order by 1
    loop
        execute format('lock table %I in access exclusive mode', name);
        execute format('select exists (select from click_batches b where b.rolled_at is null and exists (select from %I c where c.log = b.log and c.sequence = b.sequence))', name)
            into waits;
        continue when waits;
        execute format('drop table %I', name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end
$$;
-- +goose StatementEnd
comment on function click_batch_arrives() is 'Decides whether a batch is late, and refuses batches of logs that are closed.';
comment on function click_log_changes() is 'Keeps through from decreasing and from exceeding the clock, and states from going back.';
comment on function click_agent_arrives() is 'Skips agents that have an entry, and those over the limit of the day.';
comment on function click_salt(date) is 'Returns the salt of yesterday, today or tomorrow (UTC), and creates it if there is none.';
comment on function click_floor() is 'Returns the earliest time that clicks of a log may have which has just been registered.';
comment on function advance_click_as_of() is 'Sets and returns the time before which all figures of clicks are final. To be called in a transaction of its own.';
comment on function make_click_partitions(integer) is 'Makes the partitions of clicks for today and this many days ahead (UTC), where they are missing. Returns how many it made.';
comment on function drop_click_partitions(interval) is 'Drops the partitions of clicks whose day ended before that, and returns how many. It gives up if another transaction reads one of them (55P03).';

create trigger click_batch_arrives before insert on click_batches for each row execute function click_batch_arrives();
create trigger click_log_changes before insert or update on click_logs for each row execute function click_log_changes();
create trigger click_agent_arrives before insert on click_agents for each row execute function click_agent_arrives();

create table clicks_other partition of clicks default;
comment on table clicks_other is 'Clicks of days without a partition of their own, such as clicks that arrive after their retention. Control deletes them after their roll-up.';
select make_click_partitions(7);

revoke execute on function click_batch_arrives(), click_log_changes(), click_agent_arrives(), click_salt(date), click_floor(), advance_click_as_of(),
    make_click_partitions(integer), drop_click_partitions(interval) from public;
grant execute on function click_salt(date), click_floor() to deeplink_edge;
grant select, insert, update on click_logs to deeplink_edge;
grant insert, select (log, sequence) on click_batches to deeplink_edge;
grant insert on clicks, click_counts to deeplink_edge;
grant select (id, agent), insert (id, agent) on click_agents to deeplink_edge;

grant execute on function advance_click_as_of(), make_click_partitions(integer), drop_click_partitions(interval) to deeplink_control;
grant select, update, delete on click_logs to deeplink_control;
grant select, update (rolled_at), delete on click_batches to deeplink_control;
grant select, update (class, reason, ruleset), delete on clicks, clicks_other to deeplink_control;
grant select, delete on click_counts to deeplink_control;
grant select, update (facts, listed, ruleset, seen_on), delete on click_agents to deeplink_control;
grant select (day), delete on click_salts to deeplink_control;
grant select on click_as_of to deeplink_control;

-- +goose Down
drop function drop_click_partitions(interval), make_click_partitions(integer), advance_click_as_of(), click_floor(), click_salt(date);
drop table click_as_of, click_salts, click_agent_days, click_agents, click_counts, clicks, click_batches, click_logs;
drop function click_batch_arrives(), click_log_changes(), click_agent_arrives();
drop type click_log_state, click_reason, click_class, click_outcome;
