-- Makes each UPDATE of go_tasks to :status wait for the advisory lock :key without lock_timeout: only the bound on the
-- whole statement can end it. The server's log tells when each try was made.
SELECT format(
    'CREATE FUNCTION experiment_hold() RETURNS trigger LANGUAGE plpgsql AS $$
     BEGIN
         RAISE LOG ''experiment holds %% of %% at %%'', NEW.status, NEW.id, extract(epoch FROM clock_timestamp());
         PERFORM set_config(''lock_timeout'', ''0'', true);
         PERFORM pg_advisory_xact_lock_shared(%s);
         RETURN NEW;
     END $$', :'key') \gexec
CREATE TRIGGER experiment_hold BEFORE UPDATE ON go_tasks FOR EACH ROW WHEN (NEW.status = :'status')
    EXECUTE FUNCTION experiment_hold();
