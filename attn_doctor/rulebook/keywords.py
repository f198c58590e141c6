"""The word by which a text is looked for in a huge log: the rarest it has.

Logs hold ordinary English and the words of every training run; a symptom that is looked for by one
of these makes `explain` read closely what it could pass over.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"[a-z_]{3,}")
#: Words that stand in so many logs, or in so much prose, that finding them tells nothing.
_ORDINARY = frozenset(
    """
    about access account active actual add after again all already also always and another any api
    application are area argument arguments array ask assert attempted available back backend bad
    base based batch because been before begin being below best between block both build building
    built but buy call called can cannot case cause center change changed character check checkpoint
    class clear click close code color column com come command comment common company compare
    complete computer config connection contact contain contains content context control copy
    correct correctly cost could count country create created credit cuda current currently custom
    data date day days default define defined delete description design detail details determine
    development device devices did different direct directory disable display document does done
    down download driver each early easy edit education either else email embed enable end ensure
    enter entry environment epoch error event every example except exception execute execution exist
    exit expect expected experience extra fact fail failed fallen falling false family far feature
    file files final find first float following for form format forward found free from full
    function game general get getting give given global going good got gpu great group guide handle
    has have head health help here high higher history home hour how http human image implemented
    import include included index info information initialize input insert install installed instead
    int internal internally into invalid issue item items its job join just keep key keys kind know
    known language large last later lead learn length less let level library license life light like
    limit line link list little live load loading local located location log long loss low lower
    machine made main make man management many map mask match matches material max maximum may mean
    member memory message method min mind mode model modified module modules month more most move
    much multiple must name named need needed never new next non none normal normalized not note now
    null number object occurred off offer old one only open operation option options order original
    other our out output over own package page part party pass password path people period
    permission person photo place plan platform play please point policy position possible post
    power present price private problem process product program project properties property
    protection provide provided provider public published query question range rank rate read ready
    real reason receive record recover reduce refer register registered release remove rent report
    request requested require required requirement requirements requires reserved resource resources
    response rest result return returned returns review right root row run running runtime safe sale
    same save saved say school science search second section security see select selected send sent
    series server service set setting several shape share shared shop should show sign signal
    similar since single site size small software some sort source special specific specified stage
    standard start state statement station status step steps still stock stop store story string
    student study style sub subject such suggest suite support supported supports sure system table
    take taken target team technology tensor tensors term test text than thank that the their them
    then there these they thing think this those thread through time title today together token
    tokens too tool top torch total trade trained training travel treatment true trust try turn type
    under unexpected unit university unknown until update upon url use used user users using valid
    value values variable various version versions very via video view visit want warning was water
    way web website week well were what when where which while white who whole why will with within
    without woman word work worker world would write year yes yet you your
    """.split()  # noqa: SIM905 - a list literal of these would be a page of quotes
)


def keyword(text: str) -> str:
    """The rarest word of a text, in lower case; empty if it has none of three letters."""
    words: list[str] = _WORD.findall(text.lower())
    return max(words, key=_rarity, default="")


def is_rare(text: str) -> bool:
    """Some word of the text stands in few logs."""
    word = keyword(text)
    return bool(word) and word not in _ORDINARY


def _rarity(word: str) -> tuple[bool, bool, int]:
    return word not in _ORDINARY, len(word) > 3, min(len(word), 12) + 4 * ("_" in word)
