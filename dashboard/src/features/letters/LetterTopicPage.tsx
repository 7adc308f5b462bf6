import { Link, useParams, useSearchParams } from "react-router";
import { Letters } from "../../components/letters/Letters";
import { letterCommand, readLetters, writeLetters } from "../../components/letters/search";
import { Page } from "../../components/Page";

export default function LetterTopicPage() {
  const { topic = "" } = useParams();
  const [params, setParams] = useSearchParams();
  const search = readLetters(params);
  return (
    <Page title={topic} name={topic} command={letterCommand("show", topic, search)} up={<Link to="/dead-letters">Dead letters</Link>}>
      <Letters topic={topic} search={search} onSearch={(next) => setParams(writeLetters(next))} />
    </Page>
  );
}
